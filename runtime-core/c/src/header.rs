//! Makes `runtime_core.h`. `UPDATE_EXPECT=1 cargo test -p runtime-core-c` writes it anew.

use crate::argument::KINDS;
use crate::{FUNCTIONS, Function};
use expect_test::expect_file;
use runtime_core_abi::page::{CATEGORIES_MAX, CATEGORY_EXHAUSTED, NODE_HTTP};
use std::fmt::Write;

const TOP: &str = "\
/* The C interface of runtime-core's tracing. Generated from runtime-core/c/src: do not edit.
 *
 * Link with libruntime_core_c, static (and -lpthread -ldl -lm) or shared. The shared library
 * stays loaded once it is: the flags live in it. Every function may be called from any thread. */
#ifndef RUNTIME_CORE_H
#define RUNTIME_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

";

const CHECK: &str = "
/* Whether the category is on that a flag, &runtime_core_flags()[category], belongs to: a load
 * and a compare. */
static inline bool runtime_core_enabled(const uint32_t *flag) {
    return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}
";

const BOTTOM: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

fn header() -> String {
    let mut out = TOP.to_owned();
    let constants = [
        ("CATEGORIES_MAX", CATEGORIES_MAX, "Categories there can be."),
        ("CATEGORY_EXHAUSTED", CATEGORY_EXHAUSTED, "The slot that every name beyond them shares; it is never on."),
        ("CATEGORY_NODE_HTTP", NODE_HTTP, "The category node.http, which every process has."),
    ];
    for (name, value, comment) in constants {
        line(&mut out, &format!("/* {comment} */\n#define RUNTIME_CORE_{name} {value}u"));
    }
    line(&mut out, "\n/* The kind of an argument's value, and the member it is in. */\nenum runtime_core_kind {");
    for (name, number, member) in KINDS {
        line(&mut out, &format!("    RUNTIME_CORE_{name} = {number}, /* {member} */"));
    }
    line(&mut out, "};\n\n/* An argument of an event. Text and JSON end with a zero. */");
    line(&mut out, "struct runtime_core_argument {\n    const char *key;\n    uint32_t kind;\n    union {");
    let mut members: Vec<_> = KINDS.iter().map(|(_, _, member)| member).collect();
    members.dedup();
    for member in members {
        line(&mut out, &format!("        {member};"));
    }
    line(&mut out, "    } value;\n};");
    out.push_str(CHECK);
    for function in FUNCTIONS {
        declare(&mut out, function);
    }
    out + BOTTOM
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("text can be written to a string");
}

fn declare(out: &mut String, function: &Function) {
    let comment: Vec<_> = function.doc.iter().map(|line| line.trim_start()).collect();
    line(out, &format!("\n/* {} */", comment.join("\n * ").replace(" * \n", " *\n")));
    let arguments: Vec<_> = function.arguments.iter().map(|(name, of)| declared(name, of)).collect();
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    line(out, &format!("{};", declared(&format!("{}({arguments})", function.name), function.result)));
}

/// A C declaration of a name with a Rust type.
fn declared(name: &str, rust: &str) -> String {
    let (of, gap) = match rust {
        "" => ("void", " "),
        "bool" => ("bool", " "),
        "c_char" => ("char", " "),
        "c_int" => ("int", " "),
        "u32" => ("uint32_t", " "),
        "u64" => ("uint64_t", " "),
        "usize" => ("size_t", " "),
        "*const u32" => ("const uint32_t", " *"),
        "*mut u64" => ("uint64_t", " *"),
        "*const c_char" => ("const char", " *"),
        "*const Argument" => ("const struct runtime_core_argument", " *"),
        other => panic!("`{other}` has no C type here yet"),
    };
    format!("{of}{gap}{name}")
}

#[test]
fn the_header_is_up_to_date() {
    expect_file!["../../include/runtime_core.h"].assert_eq(&header());
}
