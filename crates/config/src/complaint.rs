//! What is wrong with one value of a configuration.

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong.
    pub why: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Complaint {
    /// A complaint with a reason only.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None }
    }

    /// This complaint with what to write instead.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
