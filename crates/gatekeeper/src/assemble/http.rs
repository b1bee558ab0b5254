//! The settings of a gate for HTTP, from the configuration.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use admission::{Cutoffs, EgressOrder};
use config::{HttpVersion, Mode};
use proxy::ClassGroup;
use proxy::http::{
    AccessLog, ClassRule, Files, HealthCheck, KernelBands, Settings, Speaks, Traces, TypeField, TypeRule,
    UplinkRate, UplinkSettings, rule_segments,
};
use proxy::ordinary;
use proxy::otlp::Exporter;

use super::{address, keepalive, network, tenant};
use crate::{state, tls};

/// The longest page, in bytes: it is kept, and sent to every client that is refused.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// To be called within the runtime.
///
/// # Errors
/// A file that can't be used.
pub(super) fn told(gate: &config::Gate, http: &config::Http) -> Result<Settings, String> {
    let check = &http.health_check;
    let log = |path: &std::path::PathBuf| {
        AccessLog::open(path).map_err(|error| {
            let why = state::can_be_appended_to(path).err().unwrap_or_else(|| error.to_string());
            format!("access_log: {}: {why}", path.display())
        })
    };
    let of_page = |error| format!("error_page: {error}");
    Ok(Settings {
        listen: address(&gate.listen),
        speaks: match http.version {
            HttpVersion::Http1 => Speaks::Http1,
            HttpVersion::Http2 => Speaks::Http2,
        },
        tls: tls::acceptor(gate)?,
        upstream_tls: tls::connector(gate)?,
        max_clients: gate.max_clients as usize,
        idle_max: http.idle_connections as usize,
        connect_timeout: gate.connect_timeout,
        dns_ttl: gate.dns_ttl,
        upstream_timeout: http.upstream_timeout,
        header_timeout: http.header_timeout,
        body_timeout: http.body_timeout,
        header_max: http.header_max as usize,
        header_fields_max: http.header_fields_max as usize,
        body_max: http.body_max,
        drain_timeout: gate.drain_timeout,
        trusted_proxies: http.trusted_proxies.iter().map(network).collect(),
        proxy_protocol: http.proxy_protocol,
        types: http.routes.iter().map(rule).collect(),
        classes: gate.classes.iter().map(class_rule).collect(),
        groups: gate.classes.iter().filter_map(group).collect(),
        type_field: match http.type_field {
            config::TypeField::Use => TypeField::Use,
            config::TypeField::Ignore => TypeField::Ignore,
        },
        pass_type: http.pass_type,
        health_check: check.path.as_ref().map(|path| HealthCheck {
            path: path.clone(),
            interval: check.interval,
            timeout: check.timeout,
        }),
        server_timing: http.server_timing,
        error_page: http.error_page.as_deref().map(page).transpose().map_err(of_page)?.map(Into::into),
        access_log: http.access_log.as_ref().map(log).transpose()?,
        traces: http.otlp.as_ref().map(|collector| Traces {
            exporter: Exporter::start(address(collector), &gate.name),
            share: http.otlp_share,
        }),
        uplink: http.uplink.map(|uplink| uplink_of(&gate.name, uplink, http.egress)).transpose()?,
        keepalive: keepalive(gate),
        observe: gate.mode == Mode::Observe,
        ..Settings::new(http.upstream.iter().map(address).collect())
    })
}

/// # Errors
/// The kernel refuses the priorities of its bands.
fn uplink_of(gate: &str, uplink: config::Uplink, order: config::Egress) -> Result<UplinkSettings, String> {
    let rate = match uplink {
        config::Uplink::Bits(bits) => UplinkRate::Set(bits),
        config::Uplink::Auto => UplinkRate::Found,
        config::Uplink::Kernel(bands) => {
            let bands = match bands {
                config::KernelBands::Htb => KernelBands::Htb,
                config::KernelBands::Prio => KernelBands::Prio,
                config::KernelBands::PfifoFast => KernelBands::PfifoFast,
            };
            bands.examine().map_err(|error| format!("uplink: {error}"))?;
            if let Some(missing) = bands.unprepared() {
                tracing::warn!(gate, "uplink: {missing}");
            }
            return Ok(UplinkSettings::new(UplinkRate::Kernel(bands), EgressOrder::Bands(Cutoffs::Learned)));
        }
    };
    let usual = |order| UplinkSettings::new(rate, order);
    Ok(match order {
        config::Egress::Fair => usual(EgressOrder::Fair),
        config::Egress::ShortestRemaining => usual(EgressOrder::ShortestRemaining),
        config::Egress::ShortestRemainingOnly => {
            UplinkSettings { aging: None, ..usual(EgressOrder::ShortestRemaining) }
        }
        config::Egress::Bands => usual(EgressOrder::Bands(Cutoffs::Learned)),
    })
}

fn class_rule(class: &config::Class) -> ClassRule {
    ClassRule {
        name: class.name.clone(),
        paths: class.paths.iter().map(|path| rule_segments(path)).collect(),
        hosts: class.hosts.clone(),
        fields: class.fields.iter().map(|field| (field.name.clone(), field.value.clone())).collect(),
        networks: class.networks.iter().map(network).collect(),
        tenant: class.tenant.as_ref().map(tenant),
    }
}

/// The control group of a class's workers.
pub(crate) fn group(class: &config::Class) -> Option<ClassGroup> {
    class.cgroup.clone().map(|path| ClassGroup { class: class.name.clone(), path })
}

fn rule(route: &config::Route) -> TypeRule {
    let path = rule_segments(&route.path);
    let files = route.files.clone().map(|directory| {
        let prefix = path.iter().filter(|segment| *segment != "**").cloned().collect();
        Arc::new(Files { directory, prefix })
    });
    TypeRule { method: route.method.clone(), path, name: route.name.clone(), files }
}

/// The page for visitors who are refused.
///
/// # Errors
/// It can't be read, or is too long.
pub(crate) fn page(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut page = Vec::new();
    let file = ordinary::open(path).map_err(failed)?;
    file.take(PAGE_BYTES_MAX + 1).read_to_end(&mut page).map_err(failed)?;
    if page.len() as u64 > PAGE_BYTES_MAX {
        return Err(format!("{} is longer than {PAGE_BYTES_MAX} bytes", path.display()));
    }
    Ok(page)
}
