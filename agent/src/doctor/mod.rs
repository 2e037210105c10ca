//! What works on this machine, what does not, and the remedy.
//!
//! [`facts`] reads what the system says of itself, [`attempts`] tries what can be tried,
//! and `rows` judges both, and only them: so a test can put any machine before it.

pub mod attempts;
pub mod btf;
pub mod facts;
mod rows;

use crate::error::Failure;
use attempts::Attempts;
use facts::Facts;
use std::path::Path;

/// How far a feature works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// It works in part, or in another way.
    Degraded,
    /// It does not work.
    Missing,
}

/// What is found about one feature.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    /// The feature, in the words of who uses it.
    pub feature: &'static str,
    /// How far it works.
    pub state: State,
    /// What was found.
    pub why: String,
    /// What to do about it; absent where there is nothing to do.
    pub remedy: Option<String>,
}

impl Row {
    fn new(feature: &'static str, state: State, why: impl Into<String>) -> Self {
        Self { feature, state, why: why.into(), remedy: None }
    }

    /// It works.
    pub fn ok(feature: &'static str, why: impl Into<String>) -> Self {
        Self::new(feature, State::Ok, why)
    }

    /// It works in part, or in another way.
    pub fn degraded(feature: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(feature, State::Degraded, why) }
    }

    /// It does not work.
    pub fn missing(feature: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(feature, State::Missing, why) }
    }
}

/// Examines this machine, as the user who asks.
pub fn examine(run_dir: &Path) -> Result<Vec<Row>, Failure> {
    let facts = Facts::read(Path::new("/"))
        .map_err(|error| Failure::new(format!("cannot examine this machine: {error}")).remedy("mount /proc"))?;
    let attempts = Attempts::make(&facts, run_dir);
    Ok(rows::rows(&facts, &attempts, run_dir))
}
