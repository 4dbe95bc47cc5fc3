//! Tables: a head, and rows with aligned columns.

use crate::cli::print;

/// Prints a table. Cells are sanitized: they may quote a sandbox or a model.
pub(super) fn print<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> std::io::Result<()> {
    print::text(&text(head, rows))
}

/// Formats an age with one unit.
pub(super) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

fn text<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let lines: Vec<[String; N]> = std::iter::once(&head)
        .chain(rows)
        .map(|row| {
            row.clone()
                .map(|cell| print::for_terminal(&cell).replace(['\n', '\t'], " "))
        })
        .collect();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |line: &[String; N]| {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{age, text};

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [
            ["box".into(), "docker".into()],
            ["a-long-name".into(), "\u{1b}[31mx\ny".into()],
        ];
        assert_eq!(
            text(["NAME", "AT"], &rows),
            "NAME         AT\nbox          docker\na-long-name  x y\n"
        );
    }

    #[test]
    fn age_is_shown_with_one_unit() {
        for (seconds, shown) in [
            (-5, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_200, "2 h"),
            (864_000, "10 d"),
        ] {
            assert_eq!(age(seconds), shown);
        }
    }
}
