//! How many times SRPT's mean response time FAIR's is, for each load and setup: one picture beside the
//! paper's factors, drawn from figures that earlier runs have kept.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sim::plot::Undrawn;

use super::case::{Load, Setup};
use crate::Error;
use crate::stats::Rounds;

/// Width of the picture, where bars begin and end, and from one row to the next, in pixels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 880.0;
const ROW: f64 = 22.0;
const TOP: f64 = 130.0;
const BAR: f64 = 12.0;
const FONT: &str = "Helvetica, Arial, sans-serif";
/// Of Okabe and Ito's palette: blue, and vermilion for the paper.
const OURS: &str = "#0072B2";
const PAPER: &str = "#D55E00";
const INK: &str = "#212529";
const SOFT: &str = "#495057";
const GRID: &str = "#E2E6EA";

/// A load with a setup.
#[derive(Clone, Debug)]
struct Factors {
    load: Load,
    setup: Setup,
    /// By round: of responses that came whole, and of all requests.
    rounds: Vec<[f64; 2]>,
}

impl Factors {
    fn name(&self) -> String {
        if self.setup == Setup::BASELINE { self.load.to_string() } else { self.setup.to_string() }
    }

    fn of(&self, which: usize) -> Rounds {
        Rounds::of(&self.rounds.iter().map(|round| round[which]).collect::<Vec<_>>())
    }

    /// From which factor to which the paper has it.
    fn published(&self) -> Option<(f64, f64)> {
        let of_setup = match self.setup {
            Setup::Baseline => return of_load(self.load),
            Setup::Delay(100) => 2.5,
            Setup::Loss(5) | Setup::DelayAndLoss => 2.0,
            Setup::Persistent(5 | 10) => 3.0,
            Setup::FirstTimeout(500) => 4.0,
            Setup::Impatient(10) => 8.0,
            Setup::SmallPackets(536) => 6.0,
            Setup::Realistic(7) => 1.94,
            _ => return None,
        };
        Some((of_setup, of_setup))
    }
}

fn of_load(load: Load) -> Option<(f64, f64)> {
    match load {
        Load::Workload(1) => Some((8.0, 8.0)),
        Load::Workload(_) => Some((2.0, 8.0)),
        Load::Persistent(_) => None,
    }
}

/// Draws the picture of what these files have (`srpt.json` of earlier runs), and says how many cases that is.
///
/// # Errors
/// A file can't be read, or the picture can't be written.
pub(super) fn draw(files: &[PathBuf], directory: &Path) -> Result<String, Error> {
    let mut all: Vec<Factors> = Vec::new();
    for path in files {
        let name = path.display();
        let said = |problem: &str| Error::Experiment(format!("{name}: {problem}"));
        let text = std::fs::read_to_string(path).map_err(Error::io(format!("reading {name}")))?;
        let kept: Value = serde_json::from_str(&text).map_err(|error| said(&error.to_string()))?;
        let found = read(&kept).ok_or_else(|| said("these aren't figures of `bench run srpt`"))?;
        for one in found {
            match all.iter_mut().find(|other| (other.load, other.setup) == (one.load, one.setup)) {
                Some(same) => same.rounds.extend(one.rounds),
                None => all.push(one),
            }
        }
    }
    let path = directory.join("srpt-factors.svg");
    let undrawn =
        |error: std::io::Error| Undrawn { path: path.display().to_string(), problem: error.to_string() };
    std::fs::write(&path, picture(&all)).map_err(undrawn)?;
    Ok(format!("{}: {} loads and setups\n", path.display(), all.len()))
}

/// The sections that have FAIR and SRPT.
fn read(kept: &Value) -> Option<Vec<Factors>> {
    let variants = kept.get("variants")?.as_array()?;
    let place = |name: &str| variants.iter().position(|variant| variant == name);
    let (Some(fair), Some(srpt)) = (place("FAIR"), place("SRPT")) else { return Some(Vec::new()) };
    let of_section = |section: &Value| {
        let mut name = section.get("name")?.as_str()?.split(", ");
        let load = name.next()?.parse().ok()?;
        let setup: Setup = name.next()?.strip_prefix("setup ")?.parse().ok()?;
        let turns = section.get("turns")?.as_array()?;
        let pairs = turns.get(fair)?.as_array()?.iter().zip(turns.get(srpt)?.as_array()?);
        let factors = |(fair, srpt)| {
            let (fair, srpt) = (means(fair, setup)?, means(srpt, setup)?);
            Some([0, 1].map(|which| fair[which] / srpt[which]))
        };
        Some(Factors { load, setup, rounds: pairs.map(factors).collect::<Option<_>>()? })
    };
    kept.get("sections")?.as_array()?.iter().map(of_section).collect()
}

/// The mean of a cell's responses that came whole, and of all its requests.
fn means(cell: &Value, setup: Setup) -> Option<[f64; 2]> {
    let (mean, lost) = (cell.get("mean")?.as_f64()?, cell.get("incomplete")?.as_f64()?);
    Some([mean, mean * (1.0 - lost) + lost * super::case::waited(setup).as_secs_f64()])
}

fn picture(all: &[Factors]) -> String {
    let (loads, setups): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.setup == Setup::BASELINE);
    let groups = [("By load, setup A", loads), ("By setup, W1", setups)];
    let most = all.iter().flat_map(|one| [one.of(0).high, one.of(1).high]).fold(1.0, f64::max).ceil();
    let x = |factor: f64| LEFT + factor / most * (RIGHT - LEFT);
    let rows = all.len() as f64 + 2.0 * groups.len() as f64;
    let bottom = TOP + rows * ROW;
    let height = bottom + 40.0;
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"{FONT}\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n"
    );
    let mut draw = |shape: String| _ = writeln!(svg, "{shape}");
    let text = |x: f64, y: f64, style: &str, what: &str| {
        format!("<text x=\"{x:.0}\" y=\"{y:.0}\" {style}>{what}</text>")
    };
    let soft = format!("fill=\"{SOFT}\"");
    draw(text(
        28.0,
        38.0,
        &format!("font-size=\"24\" font-weight=\"bold\" fill=\"{INK}\""),
        "FAIR's mean response time over SRPT's",
    ));
    draw(text(
        28.0,
        64.0,
        &soft,
        "a link of 10 Mbit/s; medians of rounds, and their range where there are several",
    ));
    draw(bar(28.0, 86.0, 18.0));
    draw(text(54.0, 97.0, &soft, "responses that came whole"));
    draw(diamond(274.0, 92.0));
    draw(text(288.0, 97.0, &soft, "all requests, a lost one at what its user waited (120 s)"));
    draw(published(696.0, 696.0, 92.0));
    draw(text(710.0, 97.0, &soft, "the paper"));
    let mut tick = 0.0;
    while tick <= most {
        draw(format!("<path d=\"M{0:.1} {TOP}V{bottom}\" stroke=\"{GRID}\"/>", x(tick)));
        draw(text(x(tick), bottom + 20.0, &format!("{soft} text-anchor=\"middle\""), &format!("{tick}")));
        tick += 2.0;
    }
    let mut y = TOP;
    for (title, group) in groups.iter().filter(|group| !group.1.is_empty()) {
        y += ROW;
        draw(text(28.0, y + 2.0, &format!("font-weight=\"bold\" fill=\"{INK}\""), title));
        for one in group {
            y += ROW;
            let (whole, of_all, middle) = (one.of(0), one.of(1), y - 5.0);
            draw(text(LEFT - 10.0, y, &format!("{soft} text-anchor=\"end\""), &one.name()));
            draw(bar(LEFT, middle - BAR / 2.0, x(whole.median) - LEFT));
            if whole.high > whole.low {
                let (from, to) = (x(whole.low), x(whole.high));
                draw(format!(
                    "<path d=\"M{from:.1} {middle}H{to:.1}\" stroke=\"{INK}\" stroke-width=\"2\"/>"
                ));
            }
            draw(diamond(x(of_all.median), middle));
            if let Some((low, high)) = one.published() {
                draw(published(x(low), x(high), middle));
            }
            draw(text(RIGHT + 14.0, y, &soft, &format!("{:.1}", whole.median)));
        }
        y += ROW / 2.0;
    }
    svg + "</svg>\n"
}

fn bar(x: f64, y: f64, width: f64) -> String {
    format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{OURS}\"/>")
}

fn diamond(x: f64, y: f64) -> String {
    format!(
        "<path d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6z\" fill=\"#FFFFFF\" stroke=\"{OURS}\" stroke-width=\"2\"/>",
        y - 6.0
    )
}

/// A ring, or two with a line between them.
fn published(from: f64, to: f64, y: f64) -> String {
    let mut shapes = format!("<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"{PAPER}\" stroke-width=\"2\"/>");
    for x in [from, to] {
        let _ = write!(
            shapes,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"#FFFFFF\" stroke=\"{PAPER}\" stroke-width=\"2.5\"/>"
        );
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(setup: &str, fair: [f64; 2]) -> Value {
        serde_json::json!({"variants": ["SRPT", "FAIR"], "sections": [{
            "name": format!("W1, setup {setup}, 10 requests in 50 s"),
            "turns": [
                [{"mean": 0.1, "incomplete": 0.0}, {"mean": 0.1, "incomplete": 0.0}],
                [{"mean": fair[0], "incomplete": fair[1]}, {"mean": 0.9, "incomplete": 0.0}],
            ],
        }]})
    }

    #[test]
    fn a_factor_stands_beside_the_papers_and_a_lost_response_counts_with_its_wait() {
        let baseline = read(&kept("A", [0.8, 0.01])).unwrap().remove(0);
        assert_eq!((baseline.name(), baseline.published()), ("W1".to_owned(), Some((8.0, 8.0))));
        assert!((baseline.of(0).low - 8.0).abs() < 1e-9 && (baseline.of(0).high - 9.0).abs() < 1e-9);
        // 0.8 s for 99 of a hundred, 120 s for one.
        assert!((baseline.of(1).high - 19.92).abs() < 1e-9, "{baseline:?}");
        let impatient = read(&kept("H10", [0.8, 0.01])).unwrap().remove(0);
        // Four times ten seconds.
        assert!((impatient.of(1).high - 11.92).abs() < 1e-9, "{impatient:?}");
        let svg = picture(&[baseline, impatient]);
        for part in ["By load, setup A", "By setup, W1", ">H10<", ">8.5<", "<circle"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(read(&serde_json::json!({"variants": ["FAIR", "SRPT"], "sections": [{}]})).is_none());
    }
}
