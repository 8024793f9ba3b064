//! The committed header is what cbindgen makes of the sources.
//!
//! `FTSORT_WRITE_HEADER=1 cargo test --test header` writes it anew.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    // In the order in which a reader wants to meet them, and nothing but the C interface.
    let files = [
        "status",
        "record",
        "datatype",
        "buffer",
        "config",
        "launch",
        "group",
        "run",
        "result",
        "query",
        "verify",
        "store",
        "algorithm",
        "rounds",
        "simulate",
        "tree",
        "merge",
        "gather",
        "monitor",
        "stats",
    ];
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in files {
        builder = builder.with_src(root.join(format!("src/capi/{file}.rs")));
    }
    let mut made = Vec::new();
    builder
        .generate()
        .expect("cbindgen reads the sources")
        .write(&mut made);
    let made = documented_for_c(&String::from_utf8(made).expect("a header is text"));
    let path = root.join("include/ftsort.h");
    if std::env::var_os("FTSORT_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("include/ is writable");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/ftsort.h is not what the sources say: run `make header` and commit it"
    );
}

/// Rust wants a section on safety, which tells C programmers nothing that the rest does not.
fn documented_for_c(header: &str) -> String {
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
