//! The cookies of one visit. All are for the whole site; paths and domains aren't looked at.

use cookie::Cookie;

/// Cookies that are kept; the shop has two.
const COUNT_BOUND: usize = 16;
/// The longest name with its value.
const LENGTH_BOUND: usize = 4_096;

/// What the site gave a browser to remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Takes a cookie from a `Set-Cookie`; forgets it if that says so. What can't be read, is too long or one
    /// too many is ignored.
    pub(crate) fn take(&mut self, header: &str) {
        let Ok(cookie) = Cookie::parse(header) else { return };
        let (name, value) = (cookie.name(), cookie.value());
        self.0.retain(|(other, _)| other != name);
        let is_forgotten = cookie.max_age().is_some_and(|age| !age.is_positive());
        if !is_forgotten && name.len() + value.len() <= LENGTH_BOUND && self.0.len() < COUNT_BOUND {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The value of one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The `Cookie` header, if there are any.
    pub(crate) fn header(&self) -> Option<String> {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_kept_exchanged_and_forgotten() {
        let mut cookies = Cookies::default();
        assert_eq!(cookies.header(), None);
        cookies.take("customer=7; Path=/; HttpOnly");
        cookies.take("cart=12; SameSite=Lax");
        cookies.take("customer=8");
        cookies.take("no cookie");
        assert_eq!(cookies.get("customer"), Some("8"));
        assert_eq!(cookies.header().as_deref(), Some("cart=12; customer=8"));
        cookies.take("cart=; Max-Age=0");
        assert_eq!(cookies.header().as_deref(), Some("customer=8"));
    }

    #[test]
    fn how_many_and_how_long_is_bounded() {
        let mut cookies = Cookies::default();
        cookies.take(&format!("long={}", "x".repeat(LENGTH_BOUND)));
        for number in 0..100 {
            cookies.take(&format!("c{number}=1"));
        }
        assert_eq!(cookies.0.len(), COUNT_BOUND);
        assert_eq!(cookies.get("long"), None);
    }
}
