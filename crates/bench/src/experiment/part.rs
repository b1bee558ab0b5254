//! A part of an experiment: what somebody has the time for now. The rest can be measured later, into the
//! same results.

use super::cell::Cell;
use super::plan::{Form, Load};
use crate::Error;

/// Which cells of a form are measured now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Only these variants; empty: all.
    pub variants: Vec<String>,
    /// Only these loads, as tables call them; empty: all.
    pub loads: Vec<String>,
    /// At most so many repetitions.
    pub repetitions: Option<u32>,
}

impl Part {
    /// One variant.
    pub fn of(variant: &str) -> Self {
        Self { variants: vec![variant.to_owned()], ..Self::default() }
    }

    /// Looks whether a form has all that is asked for.
    ///
    /// # Errors
    /// With the first variant or load that the form doesn't have, and those that it has.
    pub fn check(&self, form: &Form, form_name: &str) -> Result<(), Error> {
        let loads: Vec<String> = form.runs().map(Load::label).collect();
        find(&self.variants, &form.variants, "variant", form_name)?;
        find(&self.loads, &loads, "load", form_name)
    }

    /// Whether a cell is of it.
    pub fn has(&self, cell: &Cell) -> bool {
        let among = |asked: &[String], it: &str| asked.is_empty() || asked.iter().any(|known| known == it);
        among(&self.variants, &cell.variant)
            && among(&self.loads, &cell.load.label())
            && self.repetitions.is_none_or(|most| cell.repetition < most)
    }
}

fn find(asked: &[String], known: &[String], what: &str, form_name: &str) -> Result<(), Error> {
    match asked.iter().find(|asked| !known.contains(asked)) {
        None => Ok(()),
        Some(unknown) => Err(Error::Experiment(format!(
            "`{unknown}` is no {what} of the {form_name} form; they are: {}",
            known.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::runner::cells;
    use crate::experiment::tests::plan;

    fn part(variants: &[&str], loads: &[&str], repetitions: Option<u32>) -> Part {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Part { variants: owned(variants), loads: owned(loads), repetitions }
    }

    #[test]
    fn a_part_is_some_variants_under_some_loads_some_times() {
        let mut form = plan().full;
        form.variants = ["a", "b", "c"].map(str::to_owned).to_vec();
        (form.clients, form.overload, form.repetitions) = (vec![1, 20], vec![1.5], 3);
        let count = |part: &Part| {
            part.check(&form, "full").unwrap();
            cells(&form).iter().filter(|cell| part.has(cell)).count()
        };
        assert_eq!(count(&Part::default()), 27);
        assert_eq!(count(&Part::of("b")), 9);
        assert_eq!(count(&part(&["a", "c"], &["1.5×"], None)), 6);
        assert_eq!(count(&part(&[], &["1", "20"], Some(2))), 12);
    }

    #[test]
    fn what_a_form_does_not_have_is_said_with_what_it_has() {
        let form = plan().full;
        let error = part(&["nobody"], &[], None).check(&form, "full").unwrap_err().to_string();
        assert!(error.contains("`nobody` is no variant of the full form; they are: direct, "), "{error}");
        let error = part(&[], &["7"], None).check(&form, "full").unwrap_err().to_string();
        assert!(error.contains("`7` is no load of the full form; they are: "), "{error}");
    }
}
