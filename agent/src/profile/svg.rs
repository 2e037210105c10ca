//! Flame graphs, drawn by inferno: one self-contained SVG.
//!
//! Kernel frames are blue, all others warm. The subtitle tells what was measured and what
//! was lost, so that the picture stands on its own.

use super::{Profile, folded};
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{self, Options};
use std::io::{self, Write};

/// What inferno takes for kernel code, and does not show.
const KERNEL_MARK: &str = "_[k]";

/// Characters that fit beside one another into a picture of 1200 pixels.
const SUBTITLE_CHARS_MAX: usize = 155;

/// Draws a profile; one without samples gives a picture that says so.
pub fn write(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    let mut palette = PaletteMap::default();
    let mut lines = Vec::new();
    for row in profile.rows().filter(|row| row.count > 0) {
        let mut line = unmarked(&folded::clean(row.process));
        for frame in row.frames {
            line.push(';');
            let name = unmarked(&folded::clean(&frame.name));
            line.push_str(&name);
            if frame.kernel {
                line.push_str(KERNEL_MARK);
                palette.insert(format!("{name}{KERNEL_MARK}"), kernel_color(&name));
            }
        }
        lines.push(format!("{line} {}", row.count));
    }
    let subtitle = fitted(&xml_text(&profile.facts().join(" · ")));
    if lines.is_empty() {
        return write_empty(&subtitle, to);
    }
    let mut options = Options::default();
    options.title = "tracebyte profile".into();
    options.subtitle = Some(subtitle);
    options.count_name = "samples".into();
    options.palette_map = Some(&mut palette);
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), to)
}

/// Shades of blue, told apart by the name.
fn kernel_color(name: &str) -> Color {
    let hash = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    let shade = (hash % 56) as u8;
    Color { r: 70 + shade, g: 130 + shade, b: 200 + shade }
}

/// A name that inferno will not take for an annotated one.
fn unmarked(name: &str) -> String {
    name.replace("_[", "-[")
}

/// Text without the characters that XML cannot hold.
fn xml_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { ' ' } else { c }).collect()
}

/// Text cut to the picture's width: it is centred, so that one too long would lose its
/// beginning too, which is what was measured. The command has told every note already.
fn fitted(text: &str) -> String {
    match text.char_indices().nth(SUBTITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn write_empty(subtitle: &str, to: &mut impl Write) -> io::Result<()> {
    let subtitle = subtitle.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    write!(
        to,
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg version="1.1" width="1200" height="90" viewBox="0 0 1200 90" xmlns="http://www.w3.org/2000/svg">
<rect width="100%" height="100%" fill="#f8f8f8"/>
<text x="600" y="36" font-family="monospace" font-size="17" text-anchor="middle">tracebyte profile: no samples</text>
<text x="600" y="64" font-family="monospace" font-size="12" text-anchor="middle">{subtitle}</text>
</svg>
"##
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hostile_profile, profile};
    use super::*;
    use proptest::prelude::*;
    use quick_xml::Reader;
    use quick_xml::events::Event;

    #[test]
    fn a_subtitle_too_long_keeps_what_was_measured() {
        let mut profile = profile();
        profile.notes = vec!["é".repeat(1000)];
        let svg = draw(&profile);
        assert!(svg.contains(">cpu-clock at 99 Hz"), "{svg}");
        assert!(svg.contains("é…<") && !svg.contains(&"é".repeat(SUBTITLE_CHARS_MAX)));
        profile.frames.clear();
        profile.stacks.clear();
        assert!(draw(&profile).contains("é…<"));
    }

    fn draw(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Parses all of it, attributes and entities too, and refuses characters outside XML.
    fn parse(svg: &str) -> Result<(), String> {
        let unfit = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
        if let Some(c) = svg.chars().find(|c| unfit(*c)) {
            return Err(format!("holds {c:?}"));
        }
        let mut reader = Reader::from_str(svg);
        let mut open = 0;
        loop {
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(tag) => {
                    open += 1;
                    tag.attributes()
                        .try_for_each(|attribute| attribute.map(drop))
                        .map_err(|error| error.to_string())?;
                }
                Event::End(_) => open -= 1,
                Event::Eof if open == 0 => return Ok(()),
                Event::Eof => return Err("ends early".into()),
                _ => {}
            }
        }
    }

    #[test]
    fn the_picture_tells_what_was_measured() {
        let svg = draw(&profile());
        parse(&svg).unwrap();
        for text in [
            "cpu-clock at 99 Hz",
            "6 samples (2 in the kernel)",
            "3 lost",
            "5 idle",
            "a note",
            "sys_read",
            "[missed stack]",
        ] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
        assert!(!svg.contains(">sys_read_[k]<"));
    }

    #[test]
    fn a_profile_without_samples_says_so() {
        let svg = draw(&Profile { notes: vec!["a < b & c\u{1}".into()], ..Profile::default() });
        parse(&svg).unwrap();
        assert!(svg.contains("no samples") && svg.contains("a &lt; b &amp; c"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_name_gives_well_formed_xml(profile in hostile_profile()) {
            parse(&draw(&profile)).map_err(TestCaseError::fail)?;
        }
    }
}
