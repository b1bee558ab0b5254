//! `gatekeeper why`: what became of a request, and why, in a few sentences.

use proxy::admin::{StoryReport, WhyReport};

use crate::Failure;
use crate::cli::WhyArgs;
use crate::commands::running::asked;
use crate::commands::table::clean;
use crate::remote::{block_on, is_name};

/// The stories, or the JSON as it came.
pub(crate) fn why(args: &WhyArgs) -> Result<String, Failure> {
    let path = path(args)?;
    let remote = asked(&args.admin)?;
    let answer = block_on(remote.get(&path))?;
    match answer.status.as_u16() {
        400 => return Err(Failure::Usage(answer.body.trim_end().to_owned())),
        404 if answer.body.starts_with("there is no gate") => {
            return Err(Failure::Usage(answer.body.trim_end().to_owned()));
        }
        404 if answer.body.starts_with("nothing is known") => {
            return Err(Failure::Runtime(answer.body.trim_end().to_owned()));
        }
        _ => {}
    }
    if args.json && answer.status.is_success() {
        return Ok(answer.body + "\n");
    }
    let report: WhyReport = remote.parsed(answer)?;
    if report.requests.is_empty() {
        return Ok("no requests in the last five minutes\n".to_owned());
    }
    let story = |told: &StoryReport| {
        // A stranger may have named the type.
        let sentences: Vec<_> = told.story.iter().map(|sentence| clean(sentence)).collect();
        sentences.join("\n  ") + "\n"
    };
    Ok(report.requests.iter().map(story).collect::<Vec<_>>().join("\n"))
}

/// What is asked. Nothing gets into it that a path would have to escape.
fn path(args: &WhyArgs) -> Result<String, Failure> {
    let mut path = match (&args.id, args.session) {
        (Some(id), _) if !id.split('/').all(is_name) => {
            return Err(Failure::Usage(format!(
                "{id:?} names no request; a trace does (32 hexadecimal digits), and GATE/NUMBER"
            )));
        }
        (Some(id), _) => format!("/why?id={id}"),
        (None, Some(session)) => format!("/why?session={session}"),
        (None, None) => format!("/why?slowest={}", args.slowest.unwrap_or(10)),
    };
    match &args.gate {
        Some(gate) if !is_name(gate) => return Err(Failure::Usage(format!("there is no gate {gate:?}"))),
        Some(gate) => path += &format!("&gate={gate}"),
        None => {}
    }
    Ok(path)
}
