//! Small charts as SVG, drawn by hand so that a report needs nothing but a browser.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 70.0;
const COLOURS: [&str; 6] = ["#2a6f97", "#e07a1f", "#5b8e3e", "#9b2226", "#6d597a", "#7f7f7f"];

/// One line of a line chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    unit: String,
    kind: Kind,
    log_y: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Bars(Vec<(String, f64)>),
    Lines { x_unit: String, series: Vec<Series> },
}

impl Chart {
    /// One bar for each name.
    pub fn bars(
        title: impl Into<String>,
        unit: impl Into<String>,
        bars: Vec<(String, f64)>,
    ) -> Self {
        Self { title: title.into(), unit: unit.into(), kind: Kind::Bars(bars), log_y: false }
    }

    /// One line for each series.
    pub fn lines(
        title: impl Into<String>,
        unit: impl Into<String>,
        x_unit: impl Into<String>,
        series: Vec<Series>,
    ) -> Self {
        let kind = Kind::Lines { x_unit: x_unit.into(), series };
        Self { title: title.into(), unit: unit.into(), kind, log_y: false }
    }

    /// With a logarithmic y axis: for values that lie powers of ten apart.
    #[must_use]
    pub const fn log(mut self) -> Self {
        self.log_y = true;
        self
    }

    /// The chart as an SVG document.
    pub fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
             fill=\"white\"/>\n"
        );
        label(&mut svg, (WIDTH / 2.0, 24.0), "middle", &self.title);
        let values: Vec<f64> = match &self.kind {
            Kind::Bars(bars) => bars.iter().map(|bar| bar.1).collect(),
            Kind::Lines { series, .. } => {
                series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).collect()
            }
        };
        let axis = Axis::over(&values, self.log_y);
        axis.draw(&mut svg, &self.unit);
        match &self.kind {
            Kind::Bars(bars) => draw_bars(&mut svg, bars, &axis),
            Kind::Lines { x_unit, series } => draw_lines(&mut svg, x_unit, series, &axis),
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The y axis: from a value to a height.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn over(values: &[f64], log: bool) -> Self {
        let high = values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let least = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        if log && least.is_finite() {
            return Self {
                low: 10f64.powf(least.log10().floor()),
                high: 10f64.powf(high.log10().ceil()),
                log,
            };
        }
        Self { low: 0.0, high: if high > 0.0 { high * 1.08 } else { 1.0 }, log: false }
    }

    fn height(&self, value: f64) -> f64 {
        let share = if self.log {
            let span = (self.high / self.low).log10().max(1e-9);
            (value.max(self.low) / self.low).log10() / span
        } else {
            value / self.high
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, svg: &mut String, unit: &str) {
        let ticks: Vec<f64> = if self.log {
            let mut tick = self.low;
            std::iter::from_fn(|| {
                let now = tick;
                tick *= 10.0;
                (now <= self.high * 1.001).then_some(now)
            })
            .take(20)
            .collect()
        } else {
            (0..=5).map(|n| self.high * f64::from(n) / 5.0).collect()
        };
        for tick in ticks {
            let y = self.height(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
                WIDTH - RIGHT
            );
            label(svg, (LEFT - 6.0, y + 4.0), "end", &short(tick));
        }
        label(svg, (LEFT, TOP - 10.0), "end", unit);
    }
}

fn draw_bars(svg: &mut String, bars: &[(String, f64)], axis: &Axis) {
    #[expect(clippy::cast_precision_loss, reason = "a handful of bars")]
    let slot = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    let mut x = LEFT;
    for (number, (name, value)) in bars.iter().enumerate() {
        let (y, colour) = (axis.height(*value), COLOURS[number % COLOURS.len()]);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            x + slot * 0.15,
            slot * 0.7,
            HEIGHT - BOTTOM - y
        );
        label(svg, (x + slot / 2.0, y - 4.0), "middle", &short(*value));
        label(svg, (x + slot / 2.0, HEIGHT - BOTTOM + 18.0), "middle", name);
        x += slot;
    }
}

fn draw_lines(svg: &mut String, x_unit: &str, series: &[Series], axis: &Axis) {
    let xs = || series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
    let span = if high > low { high - low } else { 1.0 };
    let place = |x: f64| LEFT + (x - low) / span * (WIDTH - LEFT - RIGHT);
    let mut ticks: Vec<f64> = xs().collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let every = ticks.len().div_ceil(10).max(1);
    for x in ticks.iter().step_by(every) {
        label(svg, (place(*x), HEIGHT - BOTTOM + 18.0), "middle", &short(*x));
    }
    label(svg, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 36.0), "middle", x_unit);
    let mut legend = LEFT;
    for (number, one) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = one
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", place(*x), axis.height(*y)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for (x, y) in &one.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                place(*x),
                axis.height(*y)
            );
        }
        let _ = writeln!(
            svg,
            "<rect x=\"{legend:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
            HEIGHT - 22.0
        );
        label(svg, (legend + 16.0, HEIGHT - 12.0), "start", &one.name);
        legend += 140.0;
    }
}

fn label(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_values_stand_higher_on_both_kinds_of_axis() {
        for log in [false, true] {
            let axis = Axis::over(&[0.03, 4.5, 35.0], log);
            assert!(axis.height(35.0) < axis.height(4.5) && axis.height(4.5) < axis.height(0.03));
            assert!(axis.height(35.0) >= TOP - 0.1 && axis.height(0.03) <= HEIGHT - BOTTOM + 0.1);
        }
    }

    #[test]
    fn names_are_escaped() {
        let chart =
            Chart::bars("a < b & c", "s", vec![("x".to_owned(), 1.0), ("y".to_owned(), 0.0)]);
        let svg = chart.to_svg();
        assert!(svg.contains("a &lt; b &amp; c") && svg.matches("<rect").count() == 3);
    }

    #[test]
    fn empty_charts_do_not_break() {
        assert!(Chart::bars("none", "s", vec![]).to_svg().ends_with("</svg>\n"));
        assert!(Chart::lines("none", "s", "n", vec![]).log().to_svg().ends_with("</svg>\n"));
    }
}
