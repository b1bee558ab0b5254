//! `gatekeeper uplink setup`: the kernel's bands of an uplink, as commands of `tc`.

use std::process::Command;

use crate::Failure;
use crate::cli::{Bands, UplinkSetupArgs};

/// The bands of remaining bytes.
const BANDS: u64 = 5;
/// The longest name of a device.
const NAME_MAX: usize = 15;

/// The commands, or what has become of them.
pub(crate) fn set_up(args: &UplinkSetupArgs) -> Result<String, Failure> {
    let device = &args.dev;
    let is_word = device.bytes().all(|byte| byte.is_ascii_graphic() && !b"/'\"\\;&|<>$`".contains(&byte));
    if !is_word || device.is_empty() || device.len() > NAME_MAX || device.starts_with('-') {
        return Err(Failure::Usage(format!("--dev {device:?} isn't the name of a device, such as eth0")));
    }
    let bits = config::bits_per_second(&args.rate).filter(|bits| config::UPLINKS.contains(bits)).ok_or_else(
        || {
            let rate = &args.rate;
            Failure::Usage(format!(
                "--rate {rate:?} isn't a rate from 64kbit to 400Gbit; write such as 10Mbit or 1Gbit"
            ))
        },
    )?;
    let lines = lines(device, bits / 1_000, args.bands);
    if !args.apply {
        return Ok(lines.join("\n") + "\n");
    }
    for (at, line) in lines.iter().enumerate() {
        if let Err(why) = run(line) {
            if at > 0 {
                // The first command has made what this removes.
                let _ = run(&undo(device));
            }
            return Err(Failure::Runtime(why));
        }
    }
    Ok(format!("{device} has its bands; `{}` removes them\n", undo(device)))
}

fn undo(device: &str) -> String {
    format!("tc qdisc delete dev {device} root")
}

/// What makes the bands. `add` fails where the device has a discipline of its own already.
fn lines(device: &str, kbit: u64, bands: Bands) -> Vec<String> {
    let root = format!("tc qdisc add dev {device} root handle 1:");
    // Ten milliseconds, and some packets at least.
    let bucket = format!("{root} tbf rate {kbit}kbit burst {} latency 50ms", (kbit * 10 / 8).max(5_000));
    match bands {
        Bands::Htb => {
            let class = format!("tc class add dev {device} parent");
            // What isn't a response goes first: acknowledgments, names, sessions.
            let mut lines = vec![
                format!("{root} htb default 10"),
                format!("{class} 1: classid 1:1 htb rate {kbit}kbit quantum 1514"),
            ];
            let least = (kbit / 100).max(8);
            lines.extend((0..BANDS).map(|band| {
                let share = format!("rate {least}kbit ceil {kbit}kbit prio {band} quantum 1514");
                format!("{class} 1:1 classid 1:1{band} htb {share}")
            }));
            lines
        }
        Bands::Prio => {
            // What isn't a response has priority 0 as a rule, and goes first.
            let bands = "prio bands 5 priomap 0 0 4 3 2 1 0 0 0 0 0 0 0 0 0 0";
            vec![bucket, format!("tc qdisc add dev {device} parent 1:1 handle 10: {bands}")]
        }
        Bands::PfifoFast => {
            vec![bucket, format!("tc qdisc add dev {device} parent 1:1 handle 10: pfifo_fast")]
        }
    }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let told = Command::new(program).args(words).output();
    let told = told.map_err(|error| format!("{program} can't be run ({error}); install iproute2"))?;
    if told.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&told.stderr).trim().to_owned();
    let hint = if said.contains("not permitted") {
        "; it takes CAP_NET_ADMIN: run it as root"
    } else if said.contains("Exclusivity") || said.contains("File exists") {
        "; the device has a discipline of its own: remove that first if nobody needs it"
    } else if said.contains("unknown") || said.contains("No such file") {
        "; the kernel lacks this discipline: load its module, such as sch_htb, or take other --bands"
    } else {
        ""
    };
    Err(format!("`{line}` failed: {said}{hint}"))
}
