//! Errors for the person at the terminal: what failed, on what, why, and what to do.

use std::fmt;

/// How a command ends when it does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It failed or was refused: exit code 1.
    Failed,
    /// It was asked for wrongly: exit code 2.
    Usage,
}

/// A failure, complete enough to act on. It also crosses the control socket.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    /// Decides the exit code.
    pub kind: Kind,
    /// What failed, on what, and why: lower case, no full stop.
    pub message: String,
    /// What the person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Failure {
    /// Something failed or was refused (exit code 1).
    pub fn new(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into(), remedy: None }
    }

    /// Something was asked for wrongly (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into(), remedy: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
