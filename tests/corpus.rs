//! Checks the properties of the fuzz targets on all files of the corpus, without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
mod checks;

// One target after another, because the check of files measures the memory of all buffers together.
#[test]
fn the_corpus_has_the_properties_of_all_targets() {
    type Check = fn(&[u8]);
    let targets: &[(&str, Check)] = &[
        ("file", checks::file::check),
        ("header", checks::header::check),
        ("manifest", checks::manifest::check),
        ("schedule", checks::schedule::check),
        ("trial", checks::trial::check),
        ("entry", checks::entry::check),
    ];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, check) in targets {
        let folder = fs::read_dir(corpus.join(target)).expect("each target has files");
        let mut files: Vec<_> = folder
            .map(|file| file.expect("the corpus is readable").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{target} has no files");
        for file in files {
            let data = fs::read(&file).expect("the corpus is readable");
            let holds = std::panic::catch_unwind(|| check(&data)).is_ok();
            assert!(holds, "{}: see above", file.display());
        }
    }
}
