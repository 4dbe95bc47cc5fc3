//! Columns for people: a head, and lines below it, each as wide as its longest cell.

use crate::cli::print;

/// Prints a table. Cells may quote a sandbox.
pub(super) fn print<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> std::io::Result<()> {
    print::bytes(text(head, rows).as_bytes())
}

fn text<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let lines: Vec<[String; N]> = std::iter::once(&head)
        .chain(rows)
        .map(|row| row.clone().map(|cell| print::for_terminal(&cell)))
        .collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [["box".into(), "docker".into()], ["a-long-name".into(), "\u{1b}[31mx".into()]];
        assert_eq!(text(["NAME", "AT"], &rows), "NAME         AT\nbox          docker\na-long-name  x\n");
    }
}
