//! The headers in include/ are the templates in src/capi/headers, with the declarations that cbindgen makes of
//! src/capi in the places that the templates name, and every header compiles alone.
//!
//! `FTSORT_WRITE_HEADER=1 cargo test --test header` writes the headers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADERS: [&str; 9] = [
    "ftsort.h",
    "ftsort_external.h",
    "ftsort_query.h",
    "ftsort_rounds.h",
    "ftsort_tree.h",
    "ftsort_monitor.h",
    "ftsort_store.h",
    "ftsort_verify.h",
    "ftsort_all.h",
];

/// The header with the names of the papers, which is written by hand.
const ORIGINAL: (&str, &str) = ("c_examples/original", "ftsort_original.h");

/// The core header must stay small enough to be read.
const LONGEST_CORE: usize = 700;

/// Lines of the headers are at most this long.
const WIDTH: usize = 116;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn headers_match_the_sources() {
    let mut declarations = declarations();
    for name in HEADERS {
        let template = root().join(format!("src/capi/headers/{name}.in"));
        let template = fs::read_to_string(&template).expect("every header has a template");
        let made = filled(&template, &mut declarations);
        let path = root().join("include").join(name);
        if std::env::var_os("FTSORT_WRITE_HEADER").is_some() {
            fs::write(&path, &made).expect("include/ is writable");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == made,
            "include/{name} does not match the sources: run `make header` and commit it"
        );
        let long = made.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(long, None, "a line of {name} is longer than {WIDTH}");
    }
    let rest: Vec<&String> = declarations.keys().collect();
    assert!(rest.is_empty(), "no template names {rest:?}");
}

#[test]
fn core_header_stays_short() {
    let core = fs::read_to_string(root().join("include/ftsort.h")).expect("include/ftsort.h");
    let lines = core.lines().count();
    assert!(lines < LONGEST_CORE, "include/ftsort.h has {lines} lines");
}

#[test]
fn each_header_compiles_alone_as_c_and_cpp() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (language, variable, compiler, standard) in [
        ("c", "MPICC", "mpicc", "c99"),
        ("c", "MPICC", "mpicc", "c11"),
        ("cpp", "MPICXX", "mpicxx", "c++17"),
    ] {
        let headers = HEADERS.map(|name| ("include", name)).into_iter();
        for (place, name) in headers.chain([ORIGINAL]) {
            let source = folder.join(format!("{name}-{standard}.{language}"));
            fs::write(&source, program(place, name)).expect("the folder for tests is writable");
            let compiler = std::env::var(variable).unwrap_or_else(|_| compiler.into());
            let mut command = Command::new(compiler);
            command
                .arg(format!("-std={standard}"))
                .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
                .arg(format!("-I{}", root().join("include").display()))
                .arg(format!("-I{}", root().join(place).display()))
                .arg(&source);
            let output = command.output().expect("the MPI compiler wrapper runs");
            assert!(
                output.status.success(),
                "{name} does not compile as {standard}:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// A program that includes one header and uses its initialisers.
fn program(place: &str, header: &str) -> String {
    let text = fs::read_to_string(root().join(place).join(header)).expect("a header");
    let mut lines = vec![format!("#include \"{header}\"\n\nint main(void)\n{{")];
    for line in text.lines() {
        let name = line
            .strip_prefix("#define ")
            .and_then(|line| line.split_whitespace().next())
            .and_then(|name| name.strip_suffix("_INIT"));
        if let Some(name) = name {
            let name = name.to_lowercase();
            lines.push(format!("  {name} {name}_ = {}_INIT;", name.to_uppercase()));
            lines.push(format!("  (void){name}_;"));
        }
    }
    lines.push("  return 0;\n}\n".into());
    lines.join("\n")
}

/// A template with the declarations that its lines `@NAME` name.
fn filled(template: &str, declarations: &mut BTreeMap<String, String>) -> String {
    let mut made = String::new();
    for line in template.lines() {
        match line.strip_prefix('@') {
            None => {
                made.push_str(line);
                made.push('\n');
            }
            Some(name) => {
                let declaration = declarations.remove(name);
                let declaration = declaration.unwrap_or_else(|| {
                    panic!("{name} is not declared in src/capi, or is named twice")
                });
                made.push_str(&declaration);
            }
        }
    }
    made
}

/// The declarations that cbindgen makes of src/capi, with their comments, by name.
fn declarations() -> BTreeMap<String, String> {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    let mut sources: BTreeSet<PathBuf> = BTreeSet::new();
    for entry in fs::read_dir(root().join("src/capi")).expect("src/capi is readable") {
        sources.insert(entry.expect("src/capi is readable").path());
    }
    for source in sources {
        // `arguments` exports nothing to C.
        let is_source = source.extension().is_some_and(|end| end == "rs");
        if is_source && !source.ends_with("mod.rs") && !source.ends_with("arguments.rs") {
            builder = builder.with_src(source);
        }
    }
    let mut text = Vec::new();
    let bindings = builder.generate().expect("cbindgen reads the sources");
    bindings.write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    let text = without_safety(&text);
    let mut found = BTreeMap::new();
    for declaration in divided(&text) {
        let name = name_of(&declaration);
        found.insert(name, formatted(&declaration));
    }
    found
}

/// Rust needs a section on safety, which repeats the rest for C programmers.
fn without_safety(header: &str) -> String {
    let mut out = String::with_capacity(header.len());
    let mut in_safety = false;
    for line in header.lines() {
        let comment = line.trim();
        if comment == "* # Safety" {
            in_safety = true;
            // The empty comment line before it goes too.
            if out.trim_end().ends_with("\n *") {
                out.truncate(out.trim_end().len() - 2);
            }
        } else if in_safety && comment == "*/" {
            in_safety = false;
        }
        if !in_safety {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// Each declaration with the comment before it.
fn divided(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    let mut depth = 0_usize;
    for line in text.lines() {
        if line.is_empty() && depth == 0 {
            continue;
        }
        lines.push(line);
        let is_comment = line.trim_start().starts_with(['*', '/']);
        if !is_comment {
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
            if depth == 0 && line.ends_with(';') {
                found.push(lines.join("\n"));
                lines.clear();
            }
        }
    }
    assert_eq!(lines, Vec::<&str>::new(), "a declaration without an end");
    found
}

/// The part of a declaration after its comment.
fn code_of(declaration: &str) -> &str {
    match declaration.starts_with("/**") {
        true => declaration.split_once("*/\n").map_or("", |(_, code)| code),
        false => declaration,
    }
}

fn name_of(declaration: &str) -> String {
    let code = code_of(declaration);
    let is_identifier = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let name = if let Some((_, rest)) = code.split_once("(*") {
        // A pointer to a function.
        rest.split(')').next()
    } else if code.starts_with("typedef") {
        code.trim_end_matches(';')
            .rsplit(|letter| !is_identifier(letter))
            .next()
    } else {
        let before = code.split('(').next().unwrap_or_default();
        before.rsplit(|letter| !is_identifier(letter)).next()
    };
    name.unwrap_or_default().to_string()
}

/// A declaration as the headers have it: type names without `struct`, short comments, and the parameters of a
/// function on as few lines as they need.
fn formatted(declaration: &str) -> String {
    let code = code_of(declaration);
    let comment = &declaration[..declaration.len() - code.len()];
    let is_function = !code.starts_with("typedef");
    let mut out = match is_function && comment.lines().count() > 3 {
        true => full(comment),
        false => compact(comment, ""),
    };
    if !is_function && code.contains('{') {
        out.push_str(&with_members(code));
    } else if code.starts_with("typedef struct") {
        out.push_str(code);
    } else {
        out.push_str(&wrapped(&code.replace("struct ", "")));
    }
    let mut out = out.trim_end().to_string();
    out.push('\n');
    out
}

/// The text of a comment, one entry for each line.
fn text_of(comment: &str) -> Vec<&str> {
    let lines = comment.lines().map(str::trim);
    let inner = lines.filter(|line| *line != "/**" && *line != "*/");
    inner
        .map(|line| line.trim_start_matches('*').trim_end())
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect()
}

/// The paragraphs of a comment with filled lines. The text behind `\\param name` and `\\return` stays in a column.
fn filled_text(comment: &str, width: usize) -> Vec<String> {
    let mut paragraphs: Vec<(usize, Vec<&str>)> = Vec::new();
    for line in text_of(comment) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let hang = match words.first() {
            Some(&"\\return") => "\\return ".len(),
            // The text begins behind the spaces that follow the name.
            Some(&"\\param") => line.find("  ").map_or(0, |at| {
                at + line[at..].len() - line[at..].trim_start().len()
            }),
            _ => 0,
        };
        let is_apart = paragraphs.last().is_none_or(|(_, last)| last.is_empty());
        if hang == 0 && !words.is_empty() && !is_apart {
            let (_, last) = paragraphs.last_mut().expect("there is a paragraph");
            last.append(&mut words);
            continue;
        }
        if let (Some(&"\\param"), true) = (words.first(), hang > 0) {
            // The first words with their spaces are one word.
            let head = line[..hang].trim_end();
            words.splice(..2, [head]);
        }
        paragraphs.push((hang, words));
    }
    let mut lines = Vec::new();
    for (hang, words) in paragraphs {
        let mut line = String::new();
        for (index, word) in words.into_iter().enumerate() {
            let gap = match index {
                0 => 0,
                1 if hang > 0 => hang - line.len(),
                _ => 1,
            };
            if index > 0 && line.len() + gap + word.len() > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(hang) + word));
            } else {
                line.push_str(&" ".repeat(gap));
                line.push_str(word);
            }
        }
        lines.push(line);
    }
    lines
}

/// A comment of several lines.
fn full(comment: &str) -> String {
    let mut out = String::from("/**\n");
    for line in filled_text(comment, WIDTH - 3) {
        out.push_str(format!(" * {line}").trim_end());
        out.push('\n');
    }
    out.push_str(" */\n");
    out
}

/// A comment without lines for its beginning and its end.
fn compact(comment: &str, indent: &str) -> String {
    let text = filled_text(comment, WIDTH - indent.len() - 4);
    let Some((first, rest)) = text.split_first() else {
        return String::new();
    };
    let mut out = format!("{indent}/** {first}");
    for line in rest {
        out.push_str(format!("\n{indent} * {line}").trim_end());
    }
    let last = out.lines().last().map_or(0, str::len);
    match last + 3 <= WIDTH {
        true => out.push_str(" */\n"),
        false => out.push_str(&format!("\n{indent} */\n")),
    }
    out
}

/// A type with its members: comments that fit stand beside their members.
fn with_members(code: &str) -> String {
    let mut members: Vec<(String, String)> = Vec::new();
    let (mut comment, mut in_comment) = (String::new(), false);
    let lines: Vec<&str> = code.lines().collect();
    for line in &lines[1..lines.len() - 1] {
        in_comment |= line.trim_start().starts_with("/**");
        match in_comment {
            true => comment.push_str(&format!("{line}\n")),
            false => {
                let member = line.replace("struct ", "");
                members.push((std::mem::take(&mut comment), member));
            }
        }
        in_comment &= !line.trim_end().ends_with("*/");
    }
    let fits = |(comment, member): &(String, String), column: usize| {
        let text = text_of(comment);
        text.len() == 1 && column.max(member.len()) + text[0].len() + 9 <= WIDTH
    };
    let beside = members.iter().filter(|member| fits(member, 0));
    let column = beside.map(|(_, member)| member.len()).max().unwrap_or(0);
    let mut out = format!("{}\n", lines[0]);
    for member in &members {
        let (comment, line) = member;
        if fits(member, column) {
            out.push_str(&format!("{line:column$} /**< {} */\n", text_of(comment)[0]));
        } else {
            out.push_str(&compact(comment, "  "));
            out.push_str(&format!("{line}\n"));
        }
    }
    out.push_str(lines[lines.len() - 1]);
    out
}

/// A declaration of a function, with its lines filled.
fn wrapped(code: &str) -> String {
    let words: Vec<&str> = code.split_whitespace().collect();
    let joined = words.join(" ").replace("( ", "(");
    let indent = joined.find('(').map_or(4, |open| {
        // Parameters of a pointer to a function begin at its second parenthesis.
        let is_pointer = joined[open..].starts_with("(*");
        if is_pointer {
            joined[open + 1..]
                .find('(')
                .map_or(4, |next| open + next + 2)
        } else {
            open + 1
        }
    });
    let mut out = String::new();
    let mut line = String::new();
    for parameter in joined.split_inclusive(", ") {
        if !line.is_empty() && line.len() + parameter.trim_end().len() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
        }
        line.push_str(parameter);
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}
