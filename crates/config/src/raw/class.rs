//! The keys of service classes.

use super::FieldDefault::{Derived, Required, Value};
use super::{Field, Form};
use crate::protocol::Protocol;

/// The keys of a class that only some services have.
const OF_HTTP: [&str; 4] = ["path", "host", "header", "cgroup"];
const OF_SQL: [&str; 5] = ["user", "database", "application", "type", "tag"];

/// Whether a gate for this protocol knows a key of a `[[gate.class]]`.
pub(crate) fn is_class_key_of(protocol: Protocol, key: &str) -> bool {
    match protocol {
        Protocol::Http => !OF_SQL.contains(&key),
        Protocol::Postgres | Protocol::Mysql => !OF_HTTP.contains(&key),
    }
}

/// The keys of a `[[gate.class]]`.
pub const CLASS: &[Field] = &[
    Field {
        key: "name",
        form: Form::Text,
        takes: "letters, digits, `-` and `_`, 1 to 64",
        default: Required,
        doc: "The class's name in metrics, logs and tables. Several tables of one name are several rules for one class. `\"default\"` is the class of all requests that no rule fits; its table has no rule. Where a table has several rules, all have to fit. The first table that fits decides; one that never decides is an error.",
        reason: "It can't be guessed.",
        reloadable: true,
    },
    Field {
        key: "weight",
        form: Form::Any,
        takes: "a number from 0.001 to 1000",
        default: Value("1"),
        doc: "The class's share of the service, in work, relative to the other classes with requests: 2 and 1 are two thirds and one third. The others share what a class doesn't use. Of several tables of one name one has the weight.",
        reason: "Equal weights protect each class from the others' excess.",
        reloadable: true,
    },
    Field {
        key: "goal",
        form: Form::Any,
        takes: "`\"50ms\"`, `\"p95 150ms\"`, `\"wait 20ms\"` or `\"100/s\"`",
        default: Derived("none"),
        doc: "What the class is promised: a mean response time, a percentile of it (1 to 99), the same of the queue wait, or a throughput while it asks for as much. The gate then moves the weights to keep it. The log, `/status` and a metric name a goal that no weights can keep.",
        reason: "Only you know it. With a goal the weight is where the gate begins.",
        reloadable: true,
    },
    Field {
        key: "importance",
        form: Form::Any,
        takes: "0 to 255",
        default: Value("0"),
        doc: "Where not all goals can be kept, those of the least importance are given up. Classes of one importance miss theirs alike.",
        reason: "Only the operator knows whose promise matters more.",
        reloadable: true,
    },
    Field {
        key: "floor",
        form: Form::Any,
        takes: "a number from 0.001 to 1",
        default: Value("0.01"),
        doc: "The least share of the service that moving weights leaves the class.",
        reason: "No class starves for others' goals.",
        reloadable: true,
    },
    Field {
        key: "ceiling",
        form: Form::Any,
        takes: "a number from 0.001 to 1",
        default: Value("1"),
        doc: "The largest share of the service that moving weights gives the class.",
        reason: "Without a bound a goal may take the whole service.",
        reloadable: true,
    },
    Field {
        key: "background",
        form: Form::Any,
        takes: "a boolean",
        default: Value("false"),
        doc: "Whether the class gets only what others leave, such as a backfill or a crawler. Its requests start while nobody else waits, and only on an idle service, or while a quarter of its places stay free and fewer long requests than it has cores are in flight. It has no weight, goal or bound, and is the first to be refused where one has to go. A request that runs isn't interrupted: keep each short.",
        reason: "Most requests have a client that waits.",
        reloadable: true,
    },
    Field {
        key: "cgroup",
        form: Form::Text,
        takes: "a path, as `\"/site.slice/gold.service\"`",
        default: Derived("none"),
        doc: "For HTTP. The control group of this class's workers or virtual host on the same machine, as `/proc/PID/cgroup` of a worker has it. Its processor weight (`cpu.weight`, or `cpu.shares` in version 1) then follows the class's share: fixed, or as goals move it. A class with `background` has an idle group (`cpu.idle`), or the least weight where there is no such file. Give the groups of all classes one parent ([more](../guide/http.md#where-classes-meet-at-the-processor)).",
        reason: "The gate can't know which workers serve a class.",
        reloadable: true,
    },
    Field {
        key: "tenant",
        form: Form::Text,
        takes: "`\"network\"`; for HTTP also such as `\"header x-tenant\"`; for a database also `\"user\"`",
        default: Derived("none"),
        doc: "What tells the class's tenants apart. They then have equal turns in it by work, so that one that floods makes hardly anybody else wait, and is the first to be refused where the queue is full. `\"network\"` is the client's address (with IPv6 64 bits of it). Requests without the field are of one tenant together. Clients can send any field: use only one that a proxy in front sets, or that the application checks.",
        reason: "Only you know which clients are one tenant.",
        reloadable: true,
    },
    Field {
        key: "path",
        form: Form::Text,
        takes: "paths, as `[\"/api/**\", \"/cart/*\"]`",
        default: Derived("any"),
        doc: "For HTTP. Only requests whose path is one of these; `*` and `**` as in a route.",
        reason: "Different users often ask for different paths.",
        reloadable: true,
    },
    Field {
        key: "host",
        form: Form::Text,
        takes: "names, as `[\"shop.example\", \"*.shop.example\"]`",
        default: Derived("any"),
        doc: "For HTTP. Only requests to one of these hosts, without the port; `*.` at the beginning stands for one or more labels.",
        reason: "Several sites may share a service.",
        reloadable: true,
    },
    Field {
        key: "header",
        form: Form::Text,
        takes: "fields, as `[\"x-tenant: gold\", \"authorization\"]`",
        default: Derived("any"),
        doc: "For HTTP. Only requests with one of these fields, and with this value if one follows a colon. Clients can send any field: use only one that a proxy in front sets, or that the application checks.",
        reason: "Gateways and applications name their client in such fields.",
        reloadable: true,
    },
    Field {
        key: "network",
        form: Form::Text,
        takes: "addresses or networks, as `[\"10.0.0.0/8\"]`",
        default: Derived("any"),
        doc: "Only requests of clients in one of these networks. The client's address is the connecting one, or for HTTP that of `proxy_protocol`. If that is one of `trusted_proxies`, it is the last address of `X-Forwarded-For` that isn't.",
        reason: "Machines of one's own, or of a partner, are known by it.",
        reloadable: true,
    },
    Field {
        key: "user",
        form: Form::Text,
        takes: "names, as `[\"reports\", \"batch_*\"]`",
        default: Derived("any"),
        doc: "For a database. Only sessions that logged in as one of these users. In `user`, `database` and `application` a `*` at the end stands for anything.",
        reason: "Applications have users of their own.",
        reloadable: true,
    },
    Field {
        key: "database",
        form: Form::Text,
        takes: "names, as `\"shop\"`",
        default: Derived("any"),
        doc: "For a database. Only in one of these databases; for MySQL the session's schema at that moment.",
        reason: "Several applications may share a server.",
        reloadable: true,
    },
    Field {
        key: "application",
        form: Form::Text,
        takes: "names, as `[\"psql\", \"worker-*\"]`",
        default: Derived("any"),
        doc: "For a database. Only where the application calls itself so: with PostgreSQL by `application_name`, as the session set it last; with MySQL by the connection attribute `program_name`. Clients can say what they like.",
        reason: "Drivers and jobs of one user are known by it.",
        reloadable: true,
    },
    Field {
        key: "type",
        form: Form::Text,
        takes: "names of types, as `gatekeeper types --json` shows them",
        default: Derived("any"),
        doc: "For a database. Only units of one of these types, written as in a [`[[gate.type]]`](#gatetype). A transaction is of the type of its first statement.",
        reason: "A report may come from the same session as an order.",
        reloadable: true,
    },
    Field {
        key: "tag",
        form: Form::Text,
        takes: "pairs, as `[\"route=/report\", \"job=backfill\"]`",
        default: Derived("any"),
        doc: "For a database. Only units whose first statement has one of these tags in a comment, as sqlcommenter or marginalia write them: `/*route='%2Freport'*/`, `/*job:backfill*/`. The value is the decoded one, as a whole. Trace ids aren't looked at.",
        reason: "The application knows best for whom it works.",
        reloadable: true,
    },
];
