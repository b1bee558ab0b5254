//! What a GraphQL document asks for: the name of its first operation, or the first field of one without a
//! name.
//!
//! ```text
//! query Cart($id: ID!) { cart(id: $id) { total } }      Cart
//! { mine: cart { total } }                              cart
//! fragment F on Cart { total } mutation { buy }         buy
//! ```
//!
//! It is a look, not a parser: what is no GraphQL has some name, or none.

/// The operation of a document.
pub(super) fn operation(document: &str) -> Option<&str> {
    let mut scan = Scan { text: document, at: 0 };
    loop {
        if scan.next()? == b'{' {
            return scan.first_field();
        }
        match scan.name()? {
            "query" | "mutation" | "subscription" => match scan.next()? {
                byte if is_name(byte) => return scan.name(),
                _ => {
                    scan.until_selection()?;
                    return scan.first_field();
                }
            },
            "fragment" => {
                scan.until_selection()?;
                scan.group()?;
            }
            _ => return None,
        }
    }
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The next byte that isn't ignored.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.rest().first()? {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => self.at += 1,
                b'#' => self.at += self.rest().iter().position(|&byte| matches!(byte, b'\r' | b'\n'))?,
                0xEF if self.rest().starts_with(b"\xEF\xBB\xBF") => self.at += 3,
                byte => return Some(byte),
            }
        }
    }

    /// The name that begins here.
    fn name(&mut self) -> Option<&'a str> {
        let length = self.rest().iter().take_while(|&&byte| is_name(byte)).count();
        let name = self.text.get(self.at..self.at + length).filter(|name| !name.is_empty())?;
        self.at += length;
        Some(name)
    }

    /// Goes to the selection of a definition, past its name, its variables and its directives.
    fn until_selection(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'{' => return Some(()),
                b'(' => self.group()?,
                b'@' => self.at += 1,
                _ => _ = self.name()?,
            }
        }
    }

    /// Goes past what stands in brackets that begin here.
    fn group(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
                b'"' => {
                    self.string()?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Goes past a string, or a block of text.
    fn string(&mut self) -> Option<()> {
        let quote: &[u8] = if self.rest().starts_with(b"\"\"\"") { b"\"\"\"" } else { b"\"" };
        self.at += quote.len();
        while !self.rest().starts_with(quote) {
            // A block knows one escape only, and that begins with a backslash, too.
            self.at += if *self.rest().first()? == b'\\' { 2.min(self.rest().len()) } else { 1 };
        }
        self.at += quote.len();
        Some(())
    }

    /// The first field of the selection that begins here; none if that is a fragment.
    fn first_field(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.next()?;
        let name = self.name()?;
        if self.next() != Some(b':') {
            return Some(name);
        }
        // It was an alias.
        self.at += 1;
        self.next()?;
        self.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_known_by_its_name_or_by_its_first_field() {
        let cases = [
            ("query Cart($id: ID!) { cart(id: $id) { total } }", Some("Cart")),
            ("mutation Buy{buy}", Some("Buy")),
            ("{ cart { total } }", Some("cart")),
            ("{cart}", Some("cart")),
            ("\u{feff} # a query\n query\t{ mine : cart }", Some("cart")),
            ("query($id: ID = \"}{\" @a) @live(if: [true]) { cart }", Some("cart")),
            (
                "fragment F on Cart { total(a: \"\"\"}\"} \\\"\"\" \"\"\") } subscription { paid }",
                Some("paid"),
            ),
            ("{ ...F } fragment F on Query { cart }", None),
            ("{ ... on Query { cart } }", None),
            ("query", None),
            ("query (", None),
            ("query (\"", None),
            ("query (\"\\", None),
            ("{", None),
            ("{ a:", None),
            ("#", None),
            ("", None),
            ("select 1", None),
            ("type Query { cart: Cart }", None),
            ("{ caf\u{e9} }", Some("caf")),
            ("fragment F } query Q { a }", None),
        ];
        for (document, expected) in cases {
            assert_eq!(operation(document), expected, "{document}");
        }
    }
}
