//! What is wrong with one value of a configuration.

/// What is wrong with a value, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

impl Complaint {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
