//! Reading the configuration again while the process runs: all of it is read, checked and built before
//! anything changes, so that a mistake changes nothing.
//!
//! The order: the file; what of it may change (`config::reload`); what the gates are told, built whole for
//! every gate; whether the process may open as many files. Only then are the parts swapped, and nothing of
//! that can fail.

use std::path::PathBuf;
use std::sync::Arc;

use config::{Reload, World};
use proxy::admin::{Admin, Token};

use crate::assemble::{Running, Told, policy, token, told};
use crate::descriptors::{Needed, check_descriptors};
use crate::log::SetLevel;
use crate::{files, manager, memory};

/// What holds, and where it came from.
pub(crate) struct Configuration {
    pub(crate) world: World,
    /// `None`: the command line, which doesn't change.
    pub(crate) source: Option<PathBuf>,
    pub(crate) set_level: SetLevel,
    pub(crate) admin: Arc<Admin>,
}

/// What a reload reads beside the configuration, and tells no change of.
const FILES: &str = "the files that it names (users, certificates, token) were read again";

/// What a reload brings, built whole.
struct Prepared {
    reload: Reload,
    gates: Vec<Told>,
    token: Option<Token>,
}

impl Configuration {
    /// Reads the file again, and has the gates follow. What was done, or why nothing was, in lines; the log
    /// has it, too.
    pub(crate) fn reload(&mut self, gates: &[Running]) -> Result<String, String> {
        manager::reloading();
        let result = self.prepare(gates).map(|prepared| self.apply(prepared, gates));
        manager::ready();
        match &result {
            Ok(_) => self.admin.note_reload(),
            Err(_) => self.admin.note_failed_reload(),
        }
        match &result {
            Ok(lines) if lines.is_empty() => {
                tracing::info!("configuration read again: nothing has changed; {FILES}");
                return Ok(format!("nothing has changed; {FILES}"));
            }
            Ok(lines) => {
                for line in lines {
                    match line {
                        Line::Applied(line) => tracing::info!("reloaded: {line}"),
                        Line::Kept(line) => tracing::warn!("{line}"),
                    }
                }
            }
            Err(errors) => {
                for error in errors.lines() {
                    tracing::error!("{error}");
                }
                tracing::error!("the configuration was not reloaded: nothing has changed");
            }
        }
        result.map(|lines| lines.into_iter().map(Line::into_text).collect::<Vec<_>>().join("\n"))
    }

    /// Everything that can go wrong.
    fn prepare(&self, gates: &[Running]) -> Result<Prepared, String> {
        let Some(path) = &self.source else {
            return Err(
                "the configuration came from the command line: there is no file to read again".to_owned()
            );
        };
        let asked = files::load(path).map_err(|errors| errors.to_string())?;
        let reload = config::reload(&self.world, &asked)?;
        let parts = reload.world.gates.iter().zip(gates);
        let parts = parts
            .map(|(gate, running)| {
                told(gate, &running.commands).map_err(|error| format!("gate {:?}: {error}", gate.name))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let token = token(&reload.world.admin)?;
        check_descriptors(Needed::of(&reload.world))?;
        Ok(Prepared { reload, gates: parts, token })
    }

    /// Nothing that can go wrong.
    fn apply(&mut self, prepared: Prepared, gates: &[Running]) -> Vec<Line> {
        let Prepared { reload, gates: parts, token } = prepared;
        let Reload { world, applied, kept } = reload;
        self.admin.set_token(token);
        self.admin.set_types_shown(world.admin.metrics_types_max as usize);
        proxy::memory::set_limit(memory::limit(&world));
        for ((gate, running), settings) in world.gates.iter().zip(gates).zip(parts) {
            running.reload(settings, policy(gate));
        }
        if world.log.level != self.world.log.level {
            (self.set_level)(world.log.level);
        }
        self.world = world;
        let applied = applied.iter().map(|change| Line::Applied(change.to_string()));
        let kept = kept.iter().map(|change| {
            Line::Kept(format!("{change}: this takes a restart, until then it stays as it is"))
        });
        applied.chain(kept).collect()
    }
}

/// One thing that a reload did, or didn't.
enum Line {
    Applied(String),
    Kept(String),
}

impl Line {
    fn into_text(self) -> String {
        match self {
            Self::Applied(line) | Self::Kept(line) => line,
        }
    }
}
