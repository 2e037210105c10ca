//! To come.
use super::Effort;
use anyhow::Result;
use serde_json::Value;

/// Measures.
pub fn run(_effort: Effort) -> Result<Vec<Value>> {
    Ok(Vec::new())
}
