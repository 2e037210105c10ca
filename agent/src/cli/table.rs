//! Aligned tables for people.

/// A table as text: columns padded to their widest cell, two blanks between them, none at
/// the end of a line.
pub fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut head.iter().copied());
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn aligns() {
        let rows = [vec!["7".to_owned(), "bücher".to_owned()], vec!["12345".to_owned(), String::new()]];
        assert_eq!(super::render(&["PID", "SERVICE"], &rows), "PID    SERVICE\n7      bücher\n12345\n");
    }
}
