//! The keys of a gate for HTTP.

use super::{Lines, name_of, tls};
use crate::checked::{EGRESSES, Gate, Http, KERNEL_BANDS, Route, TYPE_FIELDS, Uplink, VERSIONS, rate_text};

pub(super) fn requests(out: &mut Lines, gate: &Gate, http: &Http) {
    out.value("route", routes(&http.routes));
    out.text("type_field", name_of(TYPE_FIELDS, &http.type_field));
    out.value("pass_type", http.pass_type);
    out.value("max_clients", gate.max_clients);
    out.text("upstream_http", name_of(VERSIONS, &http.version));
    out.time("connect_timeout", gate.connect_timeout);
    out.time("dns_ttl", gate.dns_ttl);
    out.time("upstream_timeout", http.upstream_timeout);
    out.value("idle_connections", http.idle_connections);
    out.text("health_check", http.health_check.path.as_deref().unwrap_or("none"));
    out.time("health_interval", http.health_check.interval);
    out.time("health_timeout", http.health_check.timeout);
    tls(out, gate);
    out.time("keepalive", gate.keepalive);
    out.time("header_timeout", http.header_timeout);
    out.time("body_timeout", http.body_timeout);
    out.value("header_max", http.header_max);
    out.value("header_fields_max", http.header_fields_max);
    match http.body_max {
        Some(bytes) => out.value("body_max", bytes),
        None => out.text("body_max", "none"),
    }
    out.texts("trusted_proxies", &http.trusted_proxies);
    out.value("proxy_protocol", http.proxy_protocol);
    out.value("server_timing", http.server_timing);
    out.file("error_page", http.error_page.as_ref());
    out.file("access_log", http.access_log.as_ref());
    match &http.otlp {
        Some(collector) => out.text("otlp", format_args!("http://{collector}")),
        None => out.text("otlp", "none"),
    }
    out.value("otlp_share", http.otlp_share);
    match http.uplink {
        Some(Uplink::Bits(bits)) => out.text("uplink", rate_text(bits)),
        Some(Uplink::Auto) => out.text("uplink", "auto"),
        Some(Uplink::Kernel(bands)) => out.text("uplink", name_of(KERNEL_BANDS, &bands)),
        None => out.text("uplink", "none"),
    }
    out.text("egress", name_of(EGRESSES, &http.egress));
    out.time("drain_timeout", gate.drain_timeout);
}

/// In one line, which means the same as tables below the gate.
fn routes(routes: &[Route]) -> toml::Value {
    let route = |route: &Route| {
        let method = route.method.iter().map(|method| ("method".to_owned(), method.clone().into()));
        let keys =
            [("path".to_owned(), route.path.clone().into()), ("name".to_owned(), route.name.clone().into())];
        let files = route.files.iter().map(|files| ("static".to_owned(), files.display().to_string().into()));
        toml::Value::Table(method.chain(keys).chain(files).collect())
    };
    toml::Value::Array(routes.iter().map(route).collect())
}
