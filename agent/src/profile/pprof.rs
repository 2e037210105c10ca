//! pprof: the gzipped protocol buffer that `go tool pprof`, speedscope and profile stores
//! read.
//!
//! Two values a sample: how often, and the nanoseconds of CPU that stands for. The process is
//! the root frame and, with its pid, a label. What there is to say beside the samples is in the comments.

use super::{Profile, Row};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};

/// Writes a profile.
pub fn write(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(to, Compression::default());
    gzip.write_all(&Builder::build(profile, &profile.facts()).encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

/// Checks what a reader relies on, as google/pprof does: ids unique and nonzero, references
/// that exist, as many values as types, a string table that begins with the empty string.
pub fn check_valid(bytes: &[u8]) -> Result<(), String> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).map_err(|error| format!("not gzip: {error}"))?;
    let profile = proto::Profile::decode(plain.as_slice()).map_err(|error| format!("not a profile: {error}"))?;
    if profile.string_table.first().is_none_or(|first| !first.is_empty()) {
        return Err("string_table[0] is not empty".into());
    }
    let text = |index: i64, what: &str| match usize::try_from(index) {
        Ok(index) if index < profile.string_table.len() => Ok(()),
        _ => Err(format!("{what}: no string {index}")),
    };
    for kind in profile.sample_type.iter().chain(&profile.period_type) {
        text(kind.r#type, "type")?;
        text(kind.unit, "unit")?;
    }
    profile.comment.iter().try_for_each(|comment| text(*comment, "comment"))?;
    let mappings = unique(profile.mapping.iter().map(|mapping| mapping.id), "mapping")?;
    for mapping in &profile.mapping {
        text(mapping.filename, "mapping's filename")?;
        text(mapping.build_id, "mapping's build id")?;
    }
    let functions = unique(profile.function.iter().map(|function| function.id), "function")?;
    for function in &profile.function {
        text(function.name, "function's name")?;
        text(function.system_name, "function's system name")?;
        text(function.filename, "function's filename")?;
    }
    let locations = unique(profile.location.iter().map(|location| location.id), "location")?;
    for location in &profile.location {
        if location.mapping_id != 0 && !mappings.contains(&location.mapping_id) {
            return Err(format!("location {}: no mapping {}", location.id, location.mapping_id));
        }
        if let Some(line) = location.line.iter().find(|line| !functions.contains(&line.function_id)) {
            return Err(format!("location {}: no function {}", location.id, line.function_id));
        }
    }
    if profile.sample_type.is_empty() && !profile.sample.is_empty() {
        return Err("samples without a type".into());
    }
    for sample in &profile.sample {
        if sample.value.len() != profile.sample_type.len() {
            return Err(format!("{} values for {} types", sample.value.len(), profile.sample_type.len()));
        }
        if let Some(id) = sample.location_id.iter().find(|id| !locations.contains(id)) {
            return Err(format!("sample: no location {id}"));
        }
        for label in &sample.label {
            text(label.key, "label's key")?;
            text(label.str, "label's text")?;
        }
    }
    Ok(())
}

fn unique(ids: impl Iterator<Item = u64>, what: &str) -> Result<HashSet<u64>, String> {
    let mut seen = HashSet::new();
    for id in ids {
        if id == 0 || !seen.insert(id) {
            return Err(format!("{what} id {id} is reserved or taken"));
        }
    }
    Ok(seen)
}

/// Numbers strings, modules and functions as it meets them.
#[derive(Default)]
struct Builder<'a> {
    out: proto::Profile,
    strings: HashMap<&'a str, i64>,
    mappings: HashMap<&'a str, u64>,
    /// By name and module: one location, and one function of the same id, each.
    locations: HashMap<(&'a str, &'a str), u64>,
}

impl<'a> Builder<'a> {
    fn build(profile: &'a Profile, comments: &'a [String]) -> proto::Profile {
        let mut builder = Builder::default();
        builder.string("");
        let period_ns = 1_000_000_000 / i64::from(profile.freq_hz.max(1));
        let cpu = builder.value_type("cpu", "nanoseconds");
        builder.out.sample_type = vec![builder.value_type("samples", "count"), cpu];
        builder.out.period_type = Some(cpu);
        builder.out.period = period_ns;
        builder.out.time_nanos = clamp(profile.start_unix_ns);
        builder.out.duration_nanos = clamp(profile.duration_ns);
        builder.out.comment = comments.iter().map(|comment| builder.string(comment)).collect();
        for row in profile.rows() {
            let sample = builder.sample(&row, period_ns);
            builder.out.sample.push(sample);
        }
        builder.out
    }

    fn sample(&mut self, row: &Row<'a>, period_ns: i64) -> proto::Sample {
        // The innermost frame first; the process is the root, as in the other formats.
        let mut location_id: Vec<u64> =
            row.frames.iter().rev().map(|frame| self.location(&frame.name, &frame.module)).collect();
        location_id.push(self.location(row.process, ""));
        let count = clamp(row.count);
        let mut label = Vec::new();
        if let Some(pid) = row.pid {
            let process = self.string(row.process);
            label.push(proto::Label { key: self.string("process"), str: process, ..Default::default() });
            label.push(proto::Label { key: self.string("pid"), num: pid.into(), ..Default::default() });
        }
        proto::Sample { location_id, value: vec![count, count.saturating_mul(period_ns)], label }
    }

    fn location(&mut self, name: &'a str, module: &'a str) -> u64 {
        if let Some(id) = self.locations.get(&(name, module)) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert((name, module), id);
        let (name, filename, mapping_id) = (self.string(name), self.string(module), self.mapping(module));
        self.out.function.push(proto::Function { id, name, system_name: name, filename, start_line: 0 });
        let line = vec![proto::Line { function_id: id, line: 0 }];
        self.out.location.push(proto::Location { id, mapping_id, line, ..Default::default() });
        id
    }

    /// The id of a module's mapping; 0, which is none, for code of no module.
    fn mapping(&mut self, module: &'a str) -> u64 {
        if module.is_empty() {
            return 0;
        }
        if let Some(id) = self.mappings.get(module) {
            return *id;
        }
        let id = self.mappings.len() as u64 + 1;
        self.mappings.insert(module, id);
        let filename = self.string(module);
        self.out.mapping.push(proto::Mapping { id, filename, has_functions: true, ..Default::default() });
        id
    }

    fn value_type(&mut self, kind: &'static str, unit: &'static str) -> proto::ValueType {
        proto::ValueType { r#type: self.string(kind), unit: self.string(unit) }
    }

    fn string(&mut self, text: &'a str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.out.string_table.len() as i64;
        self.out.string_table.push(text.to_owned());
        self.strings.insert(text, index);
        index
    }
}

fn clamp(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// The messages of the public `profile.proto`, as far as we write or check them. Fields are
/// named and numbered as there; indexes point into the string table.
#[allow(missing_docs)]
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
        #[prost(int64, tag = "4")]
        pub num_unit: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
        #[prost(int64, tag = "5")]
        pub start_line: i64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hostile_profile, profile};
    use super::*;
    use proptest::prelude::*;

    fn encode(profile: &Profile) -> Vec<u8> {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        out
    }

    fn gzip(profile: &proto::Profile) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&profile.encode_to_vec()).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn a_profile_is_valid_and_complete() {
        let profile = profile();
        check_valid(&encode(&profile)).unwrap();
        let comments = profile.facts();
        let out = Builder::build(&profile, &comments);
        assert_eq!(out.period, 10_101_010);
        assert_eq!(out.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 9);
        assert_eq!(out.string_table[out.function[0].name as usize], "work");
        assert_eq!(out.mapping.len(), 2);
        let comments: Vec<&str> = out.comment.iter().map(|at| out.string_table[*at as usize].as_str()).collect();
        assert!(comments.contains(&"a note") && comments.contains(&"3 lost"));
    }

    #[test]
    fn what_readers_cannot_take_is_refused() {
        let good = Builder::build(&Profile::default(), &[]);
        check_valid(&gzip(&good)).unwrap();
        let refused = |change: fn(&mut proto::Profile)| {
            let mut bad = good.clone();
            change(&mut bad);
            check_valid(&gzip(&bad)).unwrap_err()
        };
        let id_0 = proto::Function { id: 0, ..Default::default() };
        assert!(check_valid(b"no gzip").is_err());
        assert!(refused(|bad| bad.string_table[0] = "x".into()).contains("string_table[0]"));
        assert!(refused(|bad| bad.comment.push(99)).contains("comment"));
        assert!(refused(|bad| bad.comment.push(-1)).contains("comment"));
        assert!(refused(|bad| bad.sample.push(proto::Sample::default())).contains("0 values for 2 types"));
        assert!(refused(|bad| bad.mapping = vec![proto::Mapping { id: 1, ..Default::default() }; 2]).contains("taken"));
        assert!(
            refused(|bad| bad.location.push(proto::Location { id: 1, mapping_id: 7, ..Default::default() }))
                .contains("no mapping 7")
        );
        let mut bad = good.clone();
        bad.function.push(id_0);
        assert!(check_valid(&gzip(&bad)).unwrap_err().contains("reserved"));
    }

    proptest! {
        #[test]
        fn any_profile_is_valid(profile in hostile_profile()) {
            check_valid(&encode(&profile)).map_err(TestCaseError::fail)?;
        }

        #[test]
        fn any_bytes_are_judged_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = check_valid(&bytes);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&bytes).unwrap();
            let _ = check_valid(&gzip.finish().unwrap());
        }
    }
}
