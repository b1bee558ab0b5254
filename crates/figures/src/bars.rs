//! Stacked bars of waiting and service, the paper's beside ours, as an SVG file.

use std::fmt::Write as _;

use crate::numbers::{seconds, short_seconds};

/// Bars side by side.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// What a reader must know, under the title.
    pub subtitle: String,
    /// From the left.
    pub bars: Vec<Bar>,
}

/// One bar: waiting below, service above, in seconds; not a number where there is nothing.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// Waiting time.
    pub wait: f64,
    /// Service (execution) time.
    pub service: f64,
}

/// Width and height of the picture, and where the bars stand, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const TOP: f64 = 135.0;
const BOTTOM: f64 = 355.0;
const LEFT: f64 = 90.0;
const BAR_WIDTH: f64 = 110.0;
const FONT: &str = "Helvetica, Arial, sans-serif";
/// Of Okabe and Ito's palette: blue and orange.
const WAIT: &str = "#0072B2";
const SERVICE: &str = "#E69F00";
/// How many lines of the grid there should be at least.
const LINES: f64 = 4.0;

impl Bars {
    /// The picture.
    pub(crate) fn svg(&self) -> String {
        let most = self.bars.iter().map(|bar| bar.wait + bar.service).filter(|sum| sum.is_finite());
        let most = most.fold(f64::MIN_POSITIVE, f64::max);
        let scale = (BOTTOM - TOP) / most;
        let mut svg = format!(
            "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             xmlns=\"http://www.w3.org/2000/svg\" font-family=\"{FONT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n"
        );
        let mut text = |x: f64, y: f64, style: &str, what: &str| {
            let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"{y:.0}\" {style}>{}</text>", escaped(what));
        };
        let soft = "font-size=\"14\" fill=\"#495057\"";
        text(28.0, 38.0, "font-size=\"24\" font-weight=\"bold\" fill=\"#212529\"", &self.title);
        text(28.0, 64.0, soft, &self.subtitle);
        text(54.0, 95.0, soft, "waiting at the gate");
        text(224.0, 95.0, soft, "service (execution)");
        let step = (self.bars.len() as f64).recip() * (WIDTH - LEFT - 30.0);
        for (number, bar) in self.bars.iter().enumerate() {
            let middle = LEFT + step * (number as f64 + 0.5);
            let centered = format!("{soft} text-anchor=\"middle\"");
            text(middle, BOTTOM + 24.0, &centered, &bar.name);
            let sum = bar.wait + bar.service;
            let said = if sum.is_finite() {
                format!("{} + {}", seconds(bar.wait), seconds(bar.service))
            } else {
                "none in time".to_owned()
            };
            text(middle, BOTTOM - sum.max(0.0).min(most) * scale - 8.0, &centered, &said);
        }
        let grid = nice(most / LINES);
        let mut value = 0.0;
        while value <= most {
            let y = BOTTOM - value * scale;
            text(LEFT - 10.0, y + 5.0, &format!("{soft} text-anchor=\"end\""), &short_seconds(value));
            value += grid;
        }
        let mut rectangle = |x: f64, y: f64, width: f64, height: f64, color: &str| {
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
            );
        };
        rectangle(28.0, 84.0, 18.0, 12.0, WAIT);
        rectangle(198.0, 84.0, 18.0, 12.0, SERVICE);
        rectangle(LEFT, BOTTOM, WIDTH - LEFT - 30.0, 1.5, "#868E96");
        for (number, bar) in
            self.bars.iter().enumerate().filter(|(_, bar)| (bar.wait + bar.service).is_finite())
        {
            let x = LEFT + step * (number as f64 + 0.5) - BAR_WIDTH / 2.0;
            let (wait, service) = (bar.wait * scale, bar.service * scale);
            rectangle(x, BOTTOM - wait, BAR_WIDTH, wait, WAIT);
            rectangle(x, BOTTOM - wait - service, BAR_WIDTH, service, SERVICE);
        }
        svg + "</svg>\n"
    }
}

/// The next of 1, 2, 5, 10, … above this.
fn nice(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|&step| step >= value).unwrap_or(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_as_long_as_they_are_and_what_is_not_there_is_said() {
        let bar = |name: &str, wait, service| Bar { name: name.to_owned(), wait, service };
        let bars = Bars {
            title: "Exec Search & others".to_owned(),
            subtitle: String::new(),
            bars: vec![bar("paper", 8.0, 2.0), bar("ours", f64::NAN, f64::NAN)],
        };
        let svg = bars.svg();
        // 8 of 10 seconds of 220 pixels.
        assert!(svg.contains("height=\"176.0\"") && svg.contains("height=\"44.0\""), "{svg}");
        assert!(svg.contains("none in time") && svg.contains("Search &amp; others"), "{svg}");
        assert_eq!([0.7, 1.3, 30.0].map(nice), [1.0, 2.0, 50.0]);
    }
}
