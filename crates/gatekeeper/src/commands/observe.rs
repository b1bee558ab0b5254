//! `gatekeeper observe`: what a running gate with `mode = "observe"` would have done with the last hour.
//!
//! Its last hour comes over the admin listener as a trace, and is replayed here, so that the gatekeeper has
//! no part in the work.

use proxy::admin::Status;

use super::operate::told_of;
use super::replay::advice;
use super::running::asked;
use crate::Failure;
use crate::cli::ObserveArgs;
use crate::remote::block_on;

/// Each gate that observes in a few lines, which end with what it would have done.
pub(crate) fn observe(args: &ObserveArgs) -> Result<String, Failure> {
    let remote = asked(&args.admin)?;
    let mut gates = match &args.gate {
        Some(name) => vec![block_on(remote.gate(Some(name)))?],
        None => block_on(remote.read::<Status>("/status"))?.gates,
    };
    gates.retain(|gate| gate.mode == "observe");
    if gates.is_empty() {
        return Err(Failure::Usage(format!(
            "{}: what enforcing would do can be told with mode = \"observe\" only; of a gate that enforces, \
             `gatekeeper status` tells what it does, and `gatekeeper advise` what would be better",
            args.gate.as_ref().map_or("no gate observes".to_owned(), |name| format!("gate {name} enforces"))
        )));
    }
    let mut text = String::new();
    for gate in &gates {
        let path = format!("/gates/{}/trace", gate.name);
        text += &told_of(gate);
        text += &match block_on(remote.bytes(&path))? {
            Ok(trace) => advice(&trace, &gate.name, &args.advice)?,
            Err(answer) => {
                return Err(Failure::Runtime(format!(
                    "{remote} answers {}: {}",
                    answer.status,
                    super::table::clean(answer.body.trim_end())
                )));
            }
        };
    }
    Ok(text)
}
