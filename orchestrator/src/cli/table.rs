//! Tables: a head, and rows with aligned columns.

use rustix::termios::tcgetwinsize;

use crate::cli::print;

/// Space between two columns.
const GAP: &str = "  ";

/// Width in characters to which a column is not cut further.
const MIN_WIDTH: usize = 5;

/// Prints a table. Cells are sanitized: they may quote a sandbox or a model.
pub(super) fn print<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> std::io::Result<()> {
    print::text(&text(head, rows))
}

/// Like [`print()`]. On a terminal, cells are cut so that each row is one line; the first column is
/// not cut.
pub(super) fn print_fitted<const N: usize>(
    head: [&str; N],
    rows: &[[String; N]],
) -> std::io::Result<()> {
    let columns = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    print::text(&fitted(head, rows, columns))
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
    fitted(head, rows, 0)
}

/// Cuts cells of the widest columns to fit lines of `columns` characters. 0: unlimited.
fn fitted<const N: usize>(head: [&str; N], rows: &[[String; N]], columns: usize) -> String {
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
    let mut widths: Vec<usize> = (0..N).map(width).collect();
    while columns > 0 && widths.iter().sum::<usize>() + GAP.len() * (N - 1) > columns {
        let widest = widths.iter_mut().skip(1).max();
        match widest.filter(|width| **width > MIN_WIDTH) {
            Some(width) => *width -= 1,
            None => break,
        }
    }
    let line = |line: &[String; N]| {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{:<width$}", cut(cell, *width)));
        format!("{}\n", cells.collect::<Vec<_>>().join(GAP).trim_end())
    };
    lines.iter().map(line).collect()
}

/// Cuts a cell to `width` characters, of which the last is `…` if some are missing.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::{age, fitted, text};

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
    fn widest_columns_are_cut_to_the_width_of_the_terminal() {
        let rows = [[
            "0123456789".into(),
            "a longer model".into(),
            "the longest title".into(),
        ]];
        assert_eq!(
            fitted(["ID", "MODEL", "TITLE"], &rows, 30),
            "ID          MODEL     TITLE\n0123456789  a longe…  the lon…\n"
        );
        let narrow = fitted(["ID", "MODEL", "TITLE"], &rows, 8);
        assert!(narrow.ends_with("0123456789  a lo…  the …\n"), "{narrow}");
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
