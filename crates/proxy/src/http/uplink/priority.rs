//! What the field `Priority` says of a response (RFC 9218), in HTTP/1.1 as in HTTP/2.

use admission::{Delivery, Priority};
use http::HeaderMap;

/// The priority of a response, as far as these fields say one; what they don't say is as it was.
///
/// To be asked for the request's fields, and then for those of its response: a service knows better.
pub(crate) fn said(mut priority: Priority, fields: &HeaderMap) -> Priority {
    let values = fields.get_all("priority").into_iter().filter_map(|value| value.to_str().ok());
    for member in values.flat_map(members) {
        match member.split_once('=').unwrap_or((member, "?1")) {
            ("i", "?1") => priority.delivery = Delivery::Incremental,
            ("i", "?0") => priority.delivery = Delivery::Whole,
            ("u", urgency) => match urgency.parse() {
                Ok(urgency) if urgency <= Priority::LEAST => priority.urgency = urgency,
                // What can't be understood counts as not said.
                _ => {}
            },
            _ => {}
        }
    }
    priority
}

/// The members of a dictionary (RFC 8941), without their parameters.
fn members(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let between = move |letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    };
    text.split(between).map(|member| member.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_priority_is_read_and_what_is_unknown_or_wrong_changes_nothing() {
        let (whole, parts) = (Delivery::Whole, Delivery::Incremental);
        for (text, urgency, delivery) in [
            ("u=1, i", 1, parts),
            ("i=?1;q=2,u=7", 7, parts),
            ("u=0,i,i=?0", 0, whole),
            ("u=8, i", 3, parts),
            ("u=-1", 3, whole),
            ("u=1.5", 3, whole),
            ("u", 3, whole),
            ("i=1", 3, whole),
            ("x=\"a,u=1\",b", 3, whole),
            ("", 3, whole),
        ] {
            let fields = [("priority".parse().unwrap(), HeaderValue::from_str(text).unwrap())];
            let told = said(Priority::default(), &HeaderMap::from_iter(fields));
            assert_eq!(told, Priority { urgency, delivery }, "{text}");
        }
    }

    #[test]
    fn a_service_changes_what_it_says_and_leaves_the_rest() {
        let fields = |texts: &[&'static str]| {
            let field = |&text| ("priority".parse().unwrap(), HeaderValue::from_static(text));
            HeaderMap::from_iter(texts.iter().map(field))
        };
        let asked = said(Priority::default(), &fields(&["u=5", "i"]));
        let told = said(asked, &fields(&["u=1"]));
        assert_eq!(told, Priority { urgency: 1, delivery: Delivery::Incremental });
    }
}
