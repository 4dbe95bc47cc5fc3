//! A measured figure, its floor and its aim.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The cost of the primitive that this is built on, in the same unit and measured in the same
    /// run.
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
    pub(crate) aim: String,
    pub(crate) ok: bool,
    /// The error of a failed group, which has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// What the machine lacks for a group, which has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<&'static str>,
}

impl Figure {
    /// A figure without an aim.
    pub(crate) fn plain(name: &'static str, value: f64, unit: &'static str) -> Self {
        Self {
            name,
            value,
            unit,
            floor: None,
            ratio: None,
            aim: String::new(),
            ok: true,
            error: None,
            skipped: None,
        }
    }

    /// The row of a failed group. Its value is `null` in JSON.
    pub(crate) fn failed(group: &'static str, error: String) -> Self {
        Self {
            ok: false,
            error: Some(error),
            ..Self::plain(group, f64::NAN, "")
        }
    }

    /// The row of a skipped group. Its value is `null` in JSON.
    pub(crate) fn skipped(group: &'static str, reason: &'static str) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::plain(group, f64::NAN, "")
        }
    }

    /// A figure that must stay below a value.
    pub(crate) fn below(name: &'static str, value: f64, unit: &'static str, most: f64) -> Self {
        let aim = format!("< {most} {unit}");
        Self {
            aim,
            ok: value < most,
            ..Self::plain(name, value, unit)
        }
    }

    /// A figure that must be at least a value.
    pub(crate) fn above(name: &'static str, value: f64, unit: &'static str, least: f64) -> Self {
        let aim = format!(">= {least} {unit}");
        Self {
            aim,
            ok: value >= least,
            ..Self::plain(name, value, unit)
        }
    }

    /// A figure that must be at least this share of its floor.
    pub(crate) fn at_least(
        name: &'static str,
        value: f64,
        unit: &'static str,
        floor: f64,
        share: f64,
    ) -> Self {
        let figure = Self::plain(name, value, unit).with_floor(floor);
        Self {
            aim: format!(">= {share} x floor"),
            ok: value >= floor * share,
            ..figure
        }
    }

    /// A count that must be 0.
    pub(crate) fn count(name: &'static str, count: usize) -> Self {
        Self {
            aim: "0".to_owned(),
            ok: count == 0,
            ..Self::plain(name, count as f64, "")
        }
    }

    /// Adds a floor.
    pub(crate) fn with_floor(self, floor: f64) -> Self {
        Self {
            floor: Some(floor),
            ratio: Some(self.value / floor),
            ..self
        }
    }

    /// A figure that must not exceed this multiple of its floor.
    pub(crate) fn within(
        name: &'static str,
        value: f64,
        unit: &'static str,
        floor: f64,
        times: f64,
    ) -> Self {
        let figure = Self::plain(name, value, unit).with_floor(floor);
        Self {
            aim: format!("<= {times} x floor"),
            ok: value <= floor * times,
            ..figure
        }
    }
}

/// Returns a quantile of the samples in milliseconds.
pub(crate) fn quantile_ms(samples: &mut [Duration], share: f64) -> f64 {
    samples.sort();
    let index = ((samples.len() - 1) as f64 * share) as usize;
    samples[index].as_secs_f64() * 1e3
}

/// Returns the heads of the columns.
pub(crate) fn header() -> String {
    format!(
        "{:<58} {:>12} {:<9} {:>10} {:>7}  {:<18}",
        "figure", "value", "unit", "floor", "ratio", "aim"
    )
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(formatter, "{:<58} FAILED: {error}", self.name);
        }
        if let Some(reason) = self.skipped {
            return write!(formatter, "{:<58} skipped: {reason}", self.name);
        }
        let number =
            |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
        let mark = match (self.aim.is_empty(), self.ok) {
            (true, _) => "",
            (false, true) => "ok",
            (false, false) => "MISSED",
        };
        write!(
            formatter,
            "{:<58} {:>12.3} {:<9} {:>10} {:>7}  {:<18} {mark}",
            self.name,
            self.value,
            self.unit,
            number(self.floor),
            self.ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            self.aim,
        )
    }
}
