//! Days of the Gregorian calendar: counted, read and written.
//!
//! The conversion is Howard Hinnant's (`days_from_civil`, `civil_from_days`): years begin in March, so that
//! the leap day is a year's last, and 400 years have always the same number of days.

use std::fmt;

/// A day, as the number of days since 1 January 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub i32);

/// Days of 400 years.
const ERA: i32 = 146_097;
/// Days from 1 March of the year 0 to 1 January 1970.
const SHIFT: i32 = 719_468;

impl Day {
    /// The day of a date, whose month and day must be possible ones.
    #[must_use]
    pub const fn new(year: i32, month: i32, day: i32) -> Self {
        let year = if month <= 2 { year - 1 } else { year };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Self(era * ERA + day_of_era - SHIFT)
    }

    /// Reads `YYYY-MM-DD`, from the year 1000 on; `None` if there is no such day.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit());
            (plain && part.len() <= 4).then(|| part.parse::<i32>().ok()).flatten()
        });
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        if year < 1_000 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let date = Self::new(year, month, day);
        // 30 February is a day in March.
        (date.civil() == (year, month, day)).then_some(date)
    }

    /// Year, month and day.
    #[must_use]
    pub const fn civil(self) -> (i32, i32, i32) {
        let days = self.0 + SHIFT;
        let day_of_era = days.rem_euclid(ERA);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + days.div_euclid(ERA) * 400;
        (if month <= 2 { year + 1 } else { year }, month, day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(Day::new(1970, 1, 1), Day(0));
        assert_eq!(Day::new(2000, 3, 1), Day(11_017));
        assert_eq!(Day(11_016).to_string(), "2000-02-29");
        assert_eq!(Day(-1).to_string(), "1969-12-31");
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_written() {
        for number in Day::new(1800, 1, 1).0..Day::new(2200, 1, 1).0 {
            assert_eq!(Day::parse(&Day(number).to_string()), Some(Day(number)));
        }
    }

    #[test]
    fn what_is_no_day_is_not_read() {
        for text in
            ["", "2001-02-29", "1900-02-29", "2001-13-01", "2001-00-10", "01-02-03", "2001-1", "+2001-1-1"]
        {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
