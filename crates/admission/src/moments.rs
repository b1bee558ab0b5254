//! How many values there are, their mean, and how much they vary.

/// The count of some values, their sum, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub(crate) count: f64,
    pub(crate) sum: f64,
    pub(crate) squares: f64,
}

impl Moments {
    pub(crate) fn add(&mut self, value: f64) {
        self.keep(1.0, &Self { count: 1.0, sum: value, squares: value * value });
    }

    /// Forgets all but this part, and adds others.
    pub(crate) fn keep(&mut self, part: f64, others: &Self) {
        self.count = self.count * part + others.count;
        self.sum = self.sum * part + others.sum;
        self.squares = self.squares * part + others.squares;
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The standard error of the mean, by the spread of more than one value.
    pub(crate) fn error(&self) -> f64 {
        let variance = (self.squares - self.sum * (self.sum / self.count)) / (self.count - 1.0);
        libm::sqrt(variance.max(0.0) / self.count)
    }
}
