//! Curves as an SVG file, readable on any screen and by people who see colors differently.
//!
//! Panels stand under one another and share the time axis. The palette is Okabe and Ito's (2008), chosen to
//! be told apart with every common kind of color vision; every other variant is dashed, so that the plot
//! survives printing in black and white.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

/// Width of the picture, in pixels.
const WIDTH: u32 = 960;
/// Height of one panel.
const PANEL_HEIGHT: u32 = 270;
/// Height of the title and the legend above the panels.
const HEAD_HEIGHT: u32 = 118;
/// Height of the empty strip below the panels.
const FOOT_HEIGHT: u32 = 12;
/// Empty space at the left and right.
const MARGIN: i32 = 28;
/// How far down the legend stands.
const LEGEND_Y: i32 = 92;
/// From one row of the legend to the next.
const LEGEND_ROW: i32 = 22;
/// Length of a line in the legend.
const LEGEND_LINE: i32 = 40;
/// Width of an average letter of the legend.
const LETTER_WIDTH: i32 = 7;
/// Radius of a mark.
const MARK_SIZE: i32 = 6;
/// Radius of a point that has a gap on both sides.
const POINT_SIZE: i32 = 2;
/// After so many points in a row without a value a curve has a gap.
const GAP: usize = 3;
/// The variant that is drawn alike in every plot, whatever its place: a thin black line.
pub const WITHOUT_GATE: &str = "without a gate";
/// What zero is drawn as on a logarithmic axis: a nanosecond, far below anything measured here.
const SMALLEST_POSITIVE: f64 = 1e-9;
/// Vermilion, reddish purple, blue, bluish green, orange, sky blue and black of Okabe and Ito: an odd
/// number, so that with every other curve dashed the first fourteen differ. [`WITHOUT_GATE`] is black, too.
const PALETTE: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const INK: RGBColor = RGBColor(33, 37, 41);
const SOFT_INK: RGBColor = RGBColor(73, 80, 87);
const GRID: RGBColor = RGBColor(226, 230, 234);
const AXIS: RGBColor = RGBColor(134, 142, 150);
const FONT: &str = "Helvetica, Arial, sans-serif";

/// One variant's curve in a panel: the points, and where there are rounds the lowest and highest of them.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Time in seconds and the median of the rounds. A value that is no number is a gap.
    pub points: Vec<(f64, f64)>,
    /// Time in seconds and the lowest and highest of the rounds.
    pub band: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// A curve of points of which some have no value. Where several in a row have none, it has a gap: nothing
    /// was seen there, and a line would say otherwise.
    pub fn with_gaps(points: impl IntoIterator<Item = (f64, Option<f64>)>) -> Self {
        let mut curve = Self::default();
        let mut missing = 0;
        for (at, value) in points {
            missing = if value.is_some() { 0 } else { missing + 1 };
            if missing == GAP {
                curve.points.push((at, f64::NAN));
            }
            curve.points.extend(value.map(|value| (at, value)));
        }
        curve
    }

    /// The parts between the gaps.
    fn parts(&self) -> impl Iterator<Item = &[(f64, f64)]> {
        self.points.split(|(_, value)| value.is_nan()).filter(|part| !part.is_empty())
    }
}

/// What a curve is compared with: numbers from elsewhere, such as a paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// A value that stands in the place of one of this variant.
    Point {
        /// Where on the axis.
        at: f64,
        /// What is said to be there.
        value: f64,
        /// The variant, by index.
        variant: usize,
    },
    /// Something that is said to happen there, without a value.
    At(f64),
    /// A value that is said to hold everywhere.
    Level(f64),
}

/// How the values of a panel are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By factors of ten; only for positive values.
    Logarithmic,
}

/// One panel: a quantity over time.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is shown, with the unit.
    pub title: String,
    /// How the values are laid out.
    pub scale: Scale,
    /// How a value is written on the axis.
    pub show: fn(f64) -> String,
    /// One curve per variant.
    pub curves: Vec<Curve>,
    /// What they are compared with.
    pub marks: Vec<Mark>,
}

impl Panel {
    /// A panel without marks.
    pub fn new(title: impl Into<String>, scale: Scale, show: fn(f64) -> String, curves: Vec<Curve>) -> Self {
        Self { title: title.into(), scale, show, curves, marks: Vec::new() }
    }
}

/// A picture of several panels.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// What a reader must know, under the title.
    pub subtitle: String,
    /// The variants, in the order of every panel's curves.
    pub variants: Vec<String>,
    /// Whose the marks are, if there are any.
    pub marks: Option<String>,
    /// What runs from left to right.
    pub axis: &'static str,
    /// How long that axis is (in seconds, where it is time).
    pub seconds: f64,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

/// A plot that could not be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not draw {path}: {problem}")]
pub struct Undrawn {
    /// Where it should have been written.
    pub path: String,
    /// What the drawing library said.
    pub problem: String,
}

type Drawn<T> = Result<T, String>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Plot {
    /// Writes the plot as an SVG file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), Undrawn> {
        self.write_labeled(path, &|place| format!("{place}"))
    }

    /// Writes the plot with labels of its own; `label` formats a value of the horizontal axis. The axis need
    /// not be linear.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_labeled(&self, path: &Path, label: &dyn Fn(f64) -> String) -> Result<(), Undrawn> {
        self.draw(path, label).map_err(|problem| Undrawn { path: path.display().to_string(), problem })
    }

    fn draw(&self, path: &Path, label: &dyn Fn(f64) -> String) -> Drawn<()> {
        let panels = u32::try_from(self.panels.len()).map_err(said)?;
        let places = self.legend();
        let rows = places.last().map_or(0, |&(_, top)| (top - LEGEND_Y).unsigned_abs());
        let head_height = HEAD_HEIGHT + rows;
        let size = (WIDTH, head_height + PANEL_HEIGHT * panels + FOOT_HEIGHT);
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        let (head, body) = root.split_vertically(head_height);
        let (body, _foot) = body.split_vertically(PANEL_HEIGHT * panels);
        self.draw_head(&head, &places)?;
        for (area, panel) in body.split_evenly((self.panels.len(), 1)).iter().zip(&self.panels) {
            self.draw_panel(area, panel, label)?;
        }
        root.present().map_err(said)
    }

    /// Where each name stands in the legend, that of the marks last: from left to right, in rows.
    fn legend(&self) -> Vec<(i32, i32)> {
        let mut next = (MARGIN, LEGEND_Y);
        let place = |name: &String| {
            let letters = i32::try_from(name.chars().count()).unwrap_or(i32::MAX / LETTER_WIDTH / 2);
            let width = LEGEND_LINE + 8 + LETTER_WIDTH * letters;
            if next.0 > MARGIN && next.0 + width > WIDTH as i32 {
                next = (MARGIN, next.1 + LEGEND_ROW);
            }
            let place = next;
            next.0 += width + 30;
            place
        };
        self.variants.iter().chain(&self.marks).map(place).collect()
    }

    fn draw_head(&self, area: &Area<'_>, places: &[(i32, i32)]) -> Drawn<()> {
        let title = (FONT, 24).into_font().style(FontStyle::Bold).color(&INK);
        let small = (FONT, 14).into_font().color(&SOFT_INK);
        area.draw(&Text::new(self.title.clone(), (MARGIN, 18), title)).map_err(said)?;
        area.draw(&Text::new(self.subtitle.clone(), (MARGIN, 52), small.clone())).map_err(said)?;
        for (number, (name, &(left, top))) in self.variants.iter().zip(places).enumerate() {
            let (style, dash) = self.stroke(number);
            for piece in pieces([(left, top), (left + LEGEND_LINE, top)], dash) {
                area.draw(&PathElement::new(piece.to_vec(), style)).map_err(said)?;
            }
            let text = Text::new(name.clone(), (left + LEGEND_LINE + 8, top - 7), small.clone());
            area.draw(&text).map_err(said)?;
        }
        if let (Some(name), Some(&(left, top))) = (&self.marks, places.last()) {
            let place = (left + MARK_SIZE, top);
            area.draw(&Circle::new(place, MARK_SIZE, WHITE.filled())).map_err(said)?;
            area.draw(&Circle::new(place, MARK_SIZE, INK.stroke_width(3))).map_err(said)?;
            area.draw(&Text::new(name.clone(), (left + 2 * MARK_SIZE + 10, top - 7), small)).map_err(said)?;
        }
        Ok(())
    }

    /// How the curve of a variant is drawn: color and width, and the lengths of dashes and gaps if any.
    fn stroke(&self, variant: usize) -> (ShapeStyle, Option<(u32, u32)>) {
        if self.variants.get(variant).is_some_and(|name| name == WITHOUT_GATE) {
            return (BLACK.stroke_width(1), None);
        }
        let color = PALETTE[variant % PALETTE.len()];
        let dash = (variant % 2 == 1).then_some((9, 5));
        (color.stroke_width(2), dash)
    }

    fn draw_panel(&self, area: &Area<'_>, panel: &Panel, label: &dyn Fn(f64) -> String) -> Drawn<()> {
        let heading = (FONT, 16).into_font().style(FontStyle::Bold).color(&INK);
        area.draw(&Text::new(panel.title.clone(), (MARGIN, 12), heading)).map_err(said)?;
        let (low, high) = panel.range();
        let mut chart = ChartBuilder::on(area)
            .margin_top(40)
            .margin_right(MARGIN)
            .margin_left(8)
            .x_label_area_size(44)
            .y_label_area_size(78)
            .build_cartesian_2d(0.0..self.seconds, low..high)
            .map_err(said)?;
        let labels = match panel.scale {
            Scale::Linear => 5,
            Scale::Logarithmic => (high - low).round() as usize + 1,
        };
        let show = |value: &f64| panel.label(*value);
        let small = (FONT, 13).into_font().color(&SOFT_INK);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_labels(9)
            .y_labels(labels)
            .x_label_formatter(&|place| label(*place))
            .y_label_formatter(&show)
            .x_desc(self.axis)
            .label_style(small.clone())
            .axis_desc_style(small)
            .draw()
            .map_err(said)?;
        // Dashes last: between them a curve is seen that has the same values.
        let (whole, dashed): (Vec<_>, Vec<_>) =
            panel.curves.iter().enumerate().partition(|(number, _)| self.stroke(*number).1.is_none());
        for (number, curve) in whole.into_iter().chain(dashed) {
            let (style, dash) = self.stroke(number);
            if let [(at, value)] = curve.points[..] {
                // A line of one point would not be seen: a dot, with its band as a line.
                let ends = curve.band.iter().flat_map(|&(at, low, high)| [(at, low), (at, high)]);
                let whisker: Vec<(f64, f64)> = ends.map(|(at, end)| (at, panel.place(end))).collect();
                chart.draw_series(LineSeries::new(whisker, style)).map_err(said)?;
                let dot = Circle::new((at, panel.place(value)), MARK_SIZE, style.color.filled());
                chart.draw_series(std::iter::once(dot)).map_err(said)?;
                continue;
            }
            let band = panel.outline(curve);
            if !band.is_empty() {
                let fill = style.color.mix(0.14).filled();
                chart.draw_series(std::iter::once(Polygon::new(band, fill))).map_err(said)?;
            }
            for part in curve.parts() {
                let points = part.iter().map(|&(time, value)| (time, panel.place(value)));
                match dash {
                    _ if part.len() == 1 => {
                        let dot = |place| Circle::new(place, POINT_SIZE, style.color.filled());
                        chart.draw_series(points.map(dot)).map(|_| ())
                    }
                    None => chart.draw_series(LineSeries::new(points, style)).map(|_| ()),
                    Some((size, gap)) => {
                        chart.draw_series(DashedLineSeries::new(points, size, gap, style)).map(|_| ())
                    }
                }
                .map_err(said)?;
            }
        }
        for line in panel.marks.iter().filter_map(|mark| mark.line((low, high), self.seconds, panel)) {
            chart.draw_series(DashedLineSeries::new(line, 2, 4, SOFT_INK.stroke_width(2))).map_err(said)?;
        }
        for mark in &panel.marks {
            let Mark::Point { at, value, variant } = *mark else { continue };
            let place = (at, panel.place(value));
            let (style, _) = self.stroke(variant);
            let drawn = [WHITE.filled(), style.color.stroke_width(3)];
            chart.draw_series(drawn.map(|style| Circle::new(place, MARK_SIZE, style))).map_err(said)?;
        }
        Ok(())
    }
}

impl Mark {
    /// The ends of the line that it is drawn as, if it is one.
    fn line(self, (low, high): (f64, f64), right: f64, panel: &Panel) -> Option<[(f64, f64); 2]> {
        match self {
            Self::Point { .. } => None,
            Self::At(at) => Some([(at, low), (at, high)]),
            Self::Level(value) => Some([(0.0, panel.place(value)), (right, panel.place(value))]),
        }
    }

    /// The value that it stands at, if it has one.
    const fn value(self) -> Option<f64> {
        match self {
            Self::Point { value, .. } | Self::Level(value) => Some(value),
            Self::At(_) => None,
        }
    }
}

impl Panel {
    /// The lowest and highest place on the axis.
    fn range(&self) -> (f64, f64) {
        let values = || {
            let points = self.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
            let bands =
                self.curves.iter().flat_map(|curve| curve.band.iter().flat_map(|band| [band.1, band.2]));
            let marks = self.marks.iter().filter_map(|mark| mark.value());
            points.chain(bands).chain(marks).map(|value| self.place(value))
        };
        let highest = values().fold(f64::NEG_INFINITY, f64::max);
        match self.scale {
            Scale::Linear => (0.0, if highest > 0.0 { highest * 1.08 } else { 1.0 }),
            Scale::Logarithmic => {
                let lowest = values().fold(f64::INFINITY, f64::min);
                if highest.is_finite() {
                    (lowest.floor(), highest.ceil().max(lowest.floor() + 1.0))
                } else {
                    (0.0, 1.0)
                }
            }
        }
    }

    /// Where a value stands on the axis.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(SMALLEST_POSITIVE).log10(),
        }
    }

    /// What is written beside a place on the axis.
    fn label(&self, place: f64) -> String {
        match self.scale {
            Scale::Linear => (self.show)(place),
            Scale::Logarithmic => (self.show)(10f64.powf(place)),
        }
    }

    /// The band as an outline: along the highest values and back along the lowest.
    fn outline(&self, curve: &Curve) -> Vec<(f64, f64)> {
        let there = curve.band.iter().map(|&(time, _, high)| (time, self.place(high)));
        let back = curve.band.iter().rev().map(|&(time, low, _)| (time, self.place(low)));
        there.chain(back).collect()
    }
}

/// The pieces of a horizontal line in the legend.
fn pieces(ends: [(i32, i32); 2], dash: Option<(u32, u32)>) -> Vec<[(i32, i32); 2]> {
    let Some((size, gap)) = dash else { return vec![ends] };
    let [(from, y), (to, _)] = ends;
    (from..to).step_by((size + gap) as usize).map(|x| [(x, y), ((x + size as i32).min(to), y)]).collect()
}

/// The drawing library's errors as text: their types name the backend, which nobody outside needs to know.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(scale: Scale, points: Vec<(f64, f64)>) -> Panel {
        let band = points.iter().map(|&(time, value)| (time, value * 0.5, value * 2.0)).collect();
        let curves = vec![Curve { points, band }, Curve::default()];
        let marks = vec![Mark::Point { at: 1.0, value: 40.0, variant: 1 }, Mark::At(0.5), Mark::Level(0.3)];
        let show = |value: f64| format!("{value:.3}");
        Panel { title: "Waiting requests".to_owned(), scale, show, curves, marks }
    }

    #[test]
    fn a_plot_is_written_with_its_titles_legend_and_curves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        let points = vec![(0.0, 0.01), (1.0, 1.0), (2.0, 20.0)];
        let plot = Plot {
            title: "A sale".to_owned(),
            subtitle: "three rounds".to_owned(),
            variants: vec!["direct".to_owned(), "gated".to_owned()],
            marks: Some("from elsewhere".to_owned()),
            axis: "seconds",
            seconds: 2.0,
            panels: vec![panel(Scale::Linear, points.clone()), panel(Scale::Logarithmic, points)],
        };
        plot.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for expected in
            ["<svg", "A sale", "three rounds", "direct", "gated", "from elsewhere", "<circle", "<polyline"]
        {
            assert!(text.contains(expected), "{expected}");
        }
    }

    #[test]
    fn a_legend_that_is_too_long_for_a_row_goes_on_in_the_next() {
        let variants: Vec<String> = (0..6).map(|number| format!("a variant with a name {number}")).collect();
        let (title, subtitle) = (String::new(), String::new());
        let plot =
            Plot { title, subtitle, variants, marks: None, axis: "", seconds: 1.0, panels: Vec::new() };
        let places = plot.legend();
        let end = |&(left, _): &(i32, i32)| left + LEGEND_LINE + 8 + 23 * LETTER_WIDTH;
        assert!(places.iter().map(end).all(|end| end <= WIDTH as i32), "{places:?}");
        let rows: Vec<i32> = places.iter().map(|place| (place.1 - LEGEND_Y) / LEGEND_ROW).collect();
        assert_eq!(rows, [0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_curve_of_one_point_is_a_dot_with_its_band_as_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        let mut panel = panel(Scale::Linear, vec![(1.0, 5.0)]);
        panel.marks = Vec::new();
        let plot = Plot {
            title: String::new(),
            subtitle: String::new(),
            variants: Vec::new(),
            marks: None,
            axis: "",
            seconds: 2.0,
            panels: vec![panel],
        };
        plot.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("<circle").count(), 1);
        let whisker = "<polyline fill=\"none\" opacity=\"1\" stroke=\"#D55E00\" stroke-width=\"2\"";
        assert_eq!(text.matches(whisker).count(), 1, "{text}");
    }

    #[test]
    fn where_nothing_was_seen_a_curve_has_a_gap_and_what_is_alone_there_is_a_dot() {
        let seen = [(0.0, Some(1.0)), (1.0, None), (2.0, Some(1.0)), (3.0, None), (4.0, None), (5.0, None)];
        let curve = Curve::with_gaps(seen.into_iter().chain([(6.0, None), (7.0, Some(2.0))]));
        let parts: Vec<_> = curve.parts().collect();
        assert_eq!(parts, [&[(0.0, 1.0), (2.0, 1.0)][..], &[(7.0, 2.0)]]);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        let show = |value: f64| format!("{value}");
        let panels = vec![Panel::new("", Scale::Linear, show, vec![curve])];
        let variants = vec!["a".to_owned()];
        let (title, subtitle) = (String::new(), String::new());
        let plot = Plot { title, subtitle, variants, marks: None, axis: "", seconds: 8.0, panels };
        plot.write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("<circle").count(), 1);
    }

    #[test]
    fn without_a_gate_looks_alike_whatever_its_place() {
        let of = |names: &[&str]| {
            let variants: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (title, subtitle) = (String::new(), String::new());
            let plot =
                Plot { title, subtitle, variants, marks: None, axis: "", seconds: 1.0, panels: Vec::new() };
            let place = names.iter().position(|name| *name == WITHOUT_GATE).unwrap();
            let (style, dash) = plot.stroke(place);
            (style.color, style.stroke_width, dash)
        };
        assert_eq!(of(&[WITHOUT_GATE]), of(&["recorded", "replayed", WITHOUT_GATE]));
    }

    #[test]
    fn an_empty_panel_can_still_be_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let panels = vec![panel(Scale::Linear, vec![]), panel(Scale::Logarithmic, vec![])];
        let plot = Plot {
            title: String::new(),
            subtitle: String::new(),
            variants: vec![],
            marks: Some("from elsewhere".to_owned()),
            axis: "seconds",
            seconds: 1.0,
            panels,
        };
        plot.write(&directory.path().join("plot.svg")).unwrap();
    }

    #[test]
    fn a_logarithmic_axis_spans_whole_decades() {
        assert_eq!(panel(Scale::Logarithmic, vec![(0.0, 0.02), (1.0, 3.0)]).range(), (-2.0, 2.0));
    }

    #[test]
    fn a_plot_that_cannot_be_written_names_the_file() {
        let plot = Plot {
            title: String::new(),
            subtitle: String::new(),
            variants: vec![],
            marks: Some("from elsewhere".to_owned()),
            axis: "seconds",
            seconds: 1.0,
            panels: vec![panel(Scale::Linear, vec![])],
        };
        let error = plot.write(Path::new("/nonexistent/plot.svg")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/plot.svg"), "{error}");
    }
}
