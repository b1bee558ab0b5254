//! Service classes.

use admission::Turns;

use crate::checked::Class;

/// The classes as a TOML array of tables.
pub(super) fn classes(classes: &[Class]) -> toml::Value {
    fn list<T: ToString>(key: &str, values: &[T]) -> Option<(String, toml::Value)> {
        let texts = || values.iter().map(|value| toml::Value::from(value.to_string())).collect();
        (!values.is_empty()).then(|| (key.to_owned(), toml::Value::Array(texts())))
    }
    let class = |class: &Class| {
        let keys = [
            Some(("name".to_owned(), class.name.clone().into())),
            class.weight.map(|weight| ("weight".to_owned(), weight.as_f64().into())),
            class.goal.map(|goal| ("goal".to_owned(), goal.to_string().into())),
            class.importance.map(|importance| ("importance".to_owned(), i64::from(importance).into())),
            class.floor.map(|floor| ("floor".to_owned(), floor.as_f64().into())),
            class.ceiling.map(|ceiling| ("ceiling".to_owned(), ceiling.as_f64().into())),
            class.cgroup.clone().map(|group| ("cgroup".to_owned(), group.into())),
            class.tenant.as_ref().map(|by| ("tenant".to_owned(), by.to_string().into())),
            class.turns.map(|turns| ("background".to_owned(), (turns == Turns::Background).into())),
            list("path", &class.paths),
            list("host", &class.hosts),
            list("header", &class.fields),
            list("network", &class.networks),
            list("user", &class.users),
            list("database", &class.databases),
            list("application", &class.applications),
            list("type", &class.types),
            list("tag", &class.tags),
        ];
        toml::Value::Table(keys.into_iter().flatten().collect())
    };
    toml::Value::Array(classes.iter().map(class).collect())
}
