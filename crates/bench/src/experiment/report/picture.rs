//! The pictures of an experiment: throughput and response times by load, with what others found drawn in; as
//! SVG, and as PNG with a font of the system.

use std::path::Path;
use std::sync::Arc;

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use sim::Interval;
use sim::plot::{Curve, Mark, Panel, Plot, Scale};

use super::Shown;
use crate::Error;
use crate::experiment::plan::{Load, Metric, Place, Who};
use crate::experiment::yardstick::Yardstick;
use crate::table::{count, ratio, seconds};

/// A picture, and what is written below a place on its axis.
pub(super) struct Picture {
    plot: Plot,
    labels: Vec<(f64, String)>,
}

impl Picture {
    /// With what is written below places on its axis; nothing for an axis of numbers.
    pub(super) const fn new(plot: Plot, labels: Vec<(f64, String)>) -> Self {
        Self { plot, labels }
    }

    /// Draws the picture as SVG.
    pub(super) fn draw(&self) -> Result<String, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        let path = directory.path().join("picture.svg");
        if self.labels.is_empty() {
            self.plot.write(&path)?;
            return read(&path);
        }
        let label = |place: f64| {
            let found = self.labels.iter().find(|(at, _)| (at - place).abs() < 1e-6);
            found.map(|(_, text)| text.clone()).unwrap_or_default()
        };
        self.plot.write_labeled(&path, &label)?;
        read(&path)
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(Error::io("reading a picture"))
}

/// Each with its name: one of the closed loops, one of the open ones, one of a schedule's phases.
pub(super) fn pictures(shown: &Shown) -> Vec<(String, Picture)> {
    let measured = |load: &Load| {
        let form = shown.form();
        form.variants.iter().any(|variant| !shown.results.repetitions(variant, *load).is_empty())
    };
    let loads: Vec<Load> = shown.form().loads().filter(measured).collect();
    let of = |is: fn(&Load) -> bool| loads.iter().copied().filter(is).collect::<Vec<Load>>();
    let name = &shown.plan.name;
    [
        (name.clone(), of(|load| matches!(load, Load::Clients(1..))), "clients"),
        (
            format!("{name}-busy"),
            of(|load| matches!(load, Load::Busy(_))),
            "load, as a part of what saturates the server",
        ),
        (
            format!("{name}-overload"),
            of(|load| matches!(load, Load::Overload(_))),
            "arrivals, as multiples of the calibrated rate",
        ),
        (format!("{name}-phases"), of(|load| matches!(load, Load::Phase(_))), "phases of the schedule"),
    ]
    .into_iter()
    .filter(|(_, loads, _)| !loads.is_empty())
    .map(|(name, loads, axis)| (name, picture(shown, &loads, axis)))
    .collect()
}

fn picture(shown: &Shown, loads: &[Load], axis: &'static str) -> Picture {
    let variants = named(shown);
    let yardstick = Yardstick::of(&shown.results);
    // With a single load the variants stand side by side.
    let single = loads.len() == 1;
    let place = |variant: usize, load: usize| if single { variant as f64 + 1.0 } else { load as f64 };
    let panel = |title: &str, metric, who, scale, show| {
        let curve = |(number, variant): (usize, &String)| {
            let mut curve = Curve::default();
            for (index, &load) in loads.iter().enumerate() {
                let values: Vec<f64> = shown
                    .results
                    .repetitions(variant, load)
                    .iter()
                    .filter_map(|measured| yardstick.figure(measured, metric, who))
                    .collect();
                let found = Interval::of(&values);
                if found.mean.is_finite() {
                    let at = place(number, index);
                    curve.points.push((at, found.mean));
                    curve.band.push((at, found.low().max(found.mean * 0.01), found.high()));
                }
            }
            curve
        };
        let curves = variants.iter().enumerate().map(curve).collect();
        Panel::new(title, scale, show, curves)
    };
    let mut completed = panel("Completed per second", Metric::Throughput, Who::Clients, Scale::Linear, count);
    completed.marks = expected(shown, &variants, loads, single);
    let workload = &shown.plan.workload;
    let site = workload.site.as_ref().filter(|site| site.place == Place::Site).map(|site| site.target);
    let before_site = site.or_else(|| workload.origin.as_ref().map(|origin| origin.target));
    let (title, metric) = match before_site {
        None => ("Mean response time of all requests", Metric::Response),
        Some(_) => ("Mean response time of all that were not refused", Metric::ResponseLetIn),
    };
    let mut response = panel(title, metric, Who::Clients, Scale::Logarithmic, seconds);
    response.marks.extend(before_site.flatten().map(|target| Mark::Level(target.0.as_secs_f64())));
    let mut panels = vec![completed, response];
    if shown.is_judged(Metric::Goodput) {
        let title = "Work of the pages served, as a part of the most";
        panels.push(panel(title, Metric::Goodput, Who::Clients, Scale::Linear, ratio));
    }
    if shown.is_judged(Metric::GoodputAtUsualSpeed) {
        let title = "Work of the pages served, as a part of the most, at the processor's usual speed";
        panels.push(panel(title, Metric::GoodputAtUsualSpeed, Who::Clients, Scale::Linear, ratio));
    }
    if shown.is_judged(Metric::EstimatedCapacity) {
        let title = "Capacity that processor sharing says, pages per second";
        panels.push(panel(title, Metric::EstimatedCapacity, Who::Clients, Scale::Linear, count));
    }
    if shown.results.cells().any(|(_, measured)| measured.bystanders.is_some()) && axis == "clients" {
        let title = "Mean response time of bystanders";
        panels.push(panel(title, Metric::Response, Who::Bystanders, Scale::Logarithmic, seconds));
    }
    let form = shown.form();
    let repeated = match shown.repeated() {
        1 => "one repetition".to_owned(),
        many => format!("{many} repetitions, bands are confidence intervals of 90 %"),
    };
    let labels = if single {
        variants.iter().enumerate().map(|(number, name)| (place(number, 0), name.clone())).collect()
    } else {
        loads.iter().enumerate().map(|(index, load)| (index as f64, load.label())).collect()
    };
    let marks = panels[0].marks.iter().any(|mark| matches!(mark, Mark::Point { .. }));
    let where_it_is =
        loads.first().filter(|_| single).map_or(String::new(), |load| format!("{}; ", load.phrase()));
    let plot = Plot {
        title: shown.plan.name.clone(),
        subtitle: match loads.first() {
            Some(Load::Phase(_)) => format!("{where_it_is}each once settled, {repeated}"),
            _ => format!("{where_it_is}{} s each, {repeated}", form.window.0.as_secs_f64()),
        },
        variants: variants.clone(),
        marks: marks.then(|| "found elsewhere".to_owned()),
        axis: if single { "" } else { axis },
        seconds: if single { variants.len() as f64 + 1.0 } else { (loads.len() - 1) as f64 },
        panels,
    };
    Picture { plot, labels }
}

/// The variants of which there is something to see in any picture: a colour means the same in each.
fn named(shown: &Shown) -> Vec<String> {
    let is_measured = |variant: &String| {
        shown.form().loads().any(|load| !shown.results.repetitions(variant, load).is_empty())
            || shown.plan.expected.iter().any(|expected| expected.variant == *variant)
    };
    shown.form().variants.iter().filter(|variant| is_measured(variant)).cloned().collect()
}

/// What others found, where it is within the axis.
fn expected(shown: &Shown, variants: &[String], loads: &[Load], single: bool) -> Vec<Mark> {
    let clients: Vec<usize> = loads
        .iter()
        .filter_map(|load| match load {
            Load::Clients(clients) => Some(*clients),
            _ => None,
        })
        .collect();
    let mark = |expected: &crate::experiment::plan::Expected| {
        let variant = variants.iter().position(|name| *name == expected.variant)?;
        let at = place_of(expected.clients, &clients)?;
        let at = if single { variant as f64 + 1.0 } else { at };
        Some(Mark::Point { at, value: expected.throughput, variant })
    };
    shown.plan.expected.iter().filter_map(mark).collect()
}

/// Where so many clients stand among those of the axis, by the logarithm between two of them.
fn place_of(wanted: usize, clients: &[usize]) -> Option<f64> {
    let above = clients.iter().position(|&known| known >= wanted)?;
    if clients[above] == wanted {
        return Some(above as f64);
    }
    let below = above.checked_sub(1)?;
    let log = |clients: usize| (clients.max(1) as f64).ln();
    let part = (log(wanted) - log(clients[below])) / (log(clients[above]) - log(clients[below]));
    Some(below as f64 + part)
}

/// Pixels for each unit of the picture: sharp on today's screens.
const SCALE: f32 = 2.0;
/// Families that read well, before any other that is there.
const PREFERRED: [&str; 6] =
    ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "FreeSans"];

/// The fonts that are there.
pub(super) struct Fonts(Option<Arc<fontdb::Database>>);

impl Fonts {
    pub(super) fn of_the_system() -> Self {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        let family =
            |name: &str| fonts.faces().any(|face| face.families.iter().any(|(family, _)| family == name));
        let any =
            || fonts.faces().next().and_then(|face| face.families.first()).map(|(family, _)| family.clone());
        let chosen = PREFERRED.iter().find(|name| family(name)).map(|name| (*name).to_owned()).or_else(any);
        Self(chosen.map(|name| {
            fonts.set_sans_serif_family(name);
            Arc::new(fonts)
        }))
    }

    /// Whether there is none, and so no picture either: one without letters would say nothing.
    pub(super) const fn are_missing(&self) -> bool {
        self.0.is_none()
    }

    /// A picture as the bytes of a PNG; none without fonts.
    pub(super) fn render(&self, svg: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(fonts) = &self.0 else { return Ok(None) };
        let options = Options { fontdb: Arc::clone(fonts), ..Options::default() };
        let said = |problem: String| Error::Experiment(format!("drawing a PNG: {problem}"));
        let tree = Tree::from_str(svg, &options).map_err(|error| said(error.to_string()))?;
        let size = tree.size();
        let pixels = |length: f32| (length * SCALE).ceil() as u32;
        let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height()))
            .ok_or_else(|| said("it has no size".to_owned()))?;
        pixmap.fill(Color::WHITE);
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
        pixmap.encode_png().map(Some).map_err(|error| said(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_that_was_not_measured_has_no_place_in_a_picture() {
        let mut shown = crate::experiment::report::tests::shown();
        let measured = named(&shown);
        assert!(measured.len() > 1);
        shown.plan.short.variants.insert(1, "gate-of-tomorrow".to_owned());
        assert_eq!(named(&shown), measured);
    }

    #[test]
    fn what_others_found_stands_at_its_number_of_clients() {
        assert_eq!(place_of(300, &[4, 300, 600]), Some(1.0));
        assert!((place_of(400, &[100, 1600]).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(place_of(700, &[4, 300, 600]), None);
        assert_eq!(place_of(2, &[4, 300]), None);
    }
}
