//! C programs against the library, on real MPI, with real kills.
//!
//! Each case is one `mpirun` with a hard limit; what goes past it is a failure. Two at a time, as most
//! of a case is MPI's start and end; those that measure who is slow one at a time, when the others are done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

const LIMIT_SECONDS: &str = "60";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the library and the test programs.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a test has a path");
    program.parent().expect("in a folder").to_path_buf()
}

fn tool(variable: &str, name: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| name.to_string())
}

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

fn compiler(standard: &str) -> Command {
    let mut command = Command::new(tool("MPICC", "mpicc"));
    command
        .arg(format!("-std={standard}"))
        .args(STRICT)
        .args(["-D_GNU_SOURCE", "-O1"]);
    command.arg(format!("-I{}", root().join("include").display()));
    command
}

fn run(command: &mut Command) -> Result<String, Failed> {
    // Once in a thousand times mpirun gives up before it has started any rank.
    const NOT_STARTED: &str = "PMIx server's listener thread failed to start";
    const TRIES: usize = 3;
    let mut tried = 0;
    loop {
        tried += 1;
        let output = command.stdin(Stdio::null()).output()?;
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => return Ok(text.into_owned()),
            false if tried < TRIES && text.contains(NOT_STARTED) => {}
            false => return Err(format!("{command:?}: {}\n{text}", output.status).into()),
        }
    }
}

/// Compiles a C program of the repository against the library; once for all cases.
fn program(source: &str) -> Result<PathBuf, Failed> {
    // Two cases that start together would write the same file.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    let library = built();
    let link = library.join(format!(
        "libftsort.so.{}.{}",
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR")
    ));
    if !link.exists() {
        std::os::unix::fs::symlink("libftsort.so", &link)?;
    }
    // Examples and tests may have the same file name.
    let name = source.trim_end_matches(".c").replace('/', "-");
    let program = library.join(format!("c-{name}"));
    let source = root().join(source);
    let folder = source.parent().expect("a source is in a folder");
    let mut newest = fs::metadata(&source)?.modified()?;
    for header in fs::read_dir(folder)?.chain(fs::read_dir(root().join("include"))?) {
        let header = header?;
        if header.path().extension().is_some_and(|end| end == "h") {
            newest = newest.max(header.metadata()?.modified()?);
        }
    }
    if fs::metadata(&program)
        .and_then(|data| data.modified())
        .is_ok_and(|made| made > newest)
    {
        return Ok(program);
    }
    let mut command = compiler("c99");
    command.arg(&source).arg("-o").arg(&program);
    command
        .arg(format!("-L{}", library.display()))
        .args(["-lftsort", "-pthread", "-lm"]);
    command.arg(format!("-Wl,-rpath,{}", library.display()));
    run(&mut command)?;
    Ok(program)
}

/// A folder of its own for each case.
fn scratch() -> Result<PathBuf, Failed> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("ftsort-mpi-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

struct Launch<'a> {
    ranks: usize,
    faults: &'a str,
    ulfm: bool,
}

impl Launch<'_> {
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "2", LIMIT_SECONDS, "env", "--block-signal=PIPE"]);
        command.arg(tool("MPIRUN", "mpirun"));
        if self.ulfm {
            command.args(["--with-ft", "ulfm"]);
        }
        command.args(["--oversubscribe", "-np", &self.ranks.to_string()]);
        command
            .arg(program)
            .args(arguments)
            .env("FTSORT_FAULTS", self.faults)
            .env("LD_LIBRARY_PATH", library_path());
        command
    }
}

/// The library just built comes first: cargo names another of its folders, where an older one may lie.
fn library_path() -> std::ffi::OsString {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = [built()].into_iter().chain(std::env::split_paths(&named));
    std::env::join_paths(paths).unwrap_or_default()
}

fn launch(
    ranks: usize,
    faults: &str,
    program: &Path,
    arguments: &[&str],
) -> Result<String, Failed> {
    let launch = Launch {
        ranks,
        faults,
        ulfm: true,
    };
    let text = run(&mut launch.command(program, arguments));
    text.map_err(|error| {
        format!(
            "FTSORT_FAULTS={faults:?}: {}",
            error.message().unwrap_or("failed")
        )
        .into()
    })
}

/// One run of tests/c/sorter.c, checked bit for bit. `dead`: the ranks that must have died.
struct Sort<'a> {
    ranks: usize,
    count: &'a str,
    kind: &'a str,
    shape: &'a str,
    store: &'a str,
    replicas: &'a str,
    repair: &'a str,
    algorithm: &'a str,
    /// See tests/c/sorter.c.
    last: &'a str,
    faults: String,
    dead: Vec<usize>,
}

impl Default for Sort<'_> {
    fn default() -> Self {
        Sort {
            ranks: 4,
            count: "20000",
            kind: "i32",
            shape: "random",
            store: "memory",
            replicas: "1",
            repair: "agree",
            algorithm: "hyperquicksort",
            last: "reload",
            faults: String::new(),
            dead: Vec::new(),
        }
    }
}

impl Sort<'_> {
    /// The statuses of the survivors, after a check that exactly the victims are dead.
    fn statuses(&self, folder: &Path) -> Result<Vec<String>, Failed> {
        let sorter = program("tests/c/sorter.c")?;
        let place = folder.display().to_string();
        let arguments = [
            "run",
            &place,
            self.count,
            self.kind,
            self.shape,
            self.store,
            self.replicas,
            self.repair,
            self.algorithm,
            self.last,
        ];
        launch(self.ranks, &self.faults, &sorter, &arguments)?;
        let mut statuses = Vec::new();
        for rank in 0..self.ranks {
            let left = fs::read_to_string(folder.join(format!("status.{rank}")));
            if left.is_ok() == self.dead.contains(&rank) {
                return Err(format!("{}: rank {rank} left {left:?}", self.faults).into());
            }
            statuses.extend(left);
        }
        Ok(statuses)
    }

    fn comes_out_right(self) -> Result<(), Failed> {
        self.comes_out_right_after("")
    }

    /// And all survivors' statuses have this word.
    fn comes_out_right_after(self, word: &str) -> Result<(), Failed> {
        let folder = scratch()?;
        for status in self.statuses(&folder)? {
            if !status.starts_with("status=0 ") || !status.contains(word) {
                return Err(format!("{}: {status}", self.faults).into());
            }
        }
        let place = folder.display().to_string();
        let ranks = self.ranks.to_string();
        let arguments = ["check", &place, self.count, self.kind, self.shape, &ranks];
        run(Command::new(program("tests/c/sorter.c")?).args(arguments))?;
        let leftovers = fs::read_dir(&folder)?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("ftsort-"));
        if leftovers.count() > 0 {
            return Err(format!("{}: the store left files behind", self.faults).into());
        }
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    /// Everybody left alive says so, in one voice.
    fn fails_with(self, status: &str, words: &[&str]) -> Result<(), Failed> {
        let folder = scratch()?;
        let mut told = false;
        for left in self.statuses(&folder)? {
            if !left.starts_with(&format!("status={status} ")) {
                return Err(format!("{}: {left}", self.faults).into());
            }
            told |= words.iter().all(|word| left.contains(word));
        }
        // The reason is on the rank that has it.
        if !told {
            return Err(format!("{}: nobody says {words:?}", self.faults).into());
        }
        fs::remove_dir_all(&folder)?;
        Ok(())
    }
}

/// Data are changed on the way: found, and made good where there is anything to make it good from.
fn changes() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (faults, algorithm, store, dead) in [
        ("1~1.message", "hyperquicksort:checked", "memory", vec![]),
        ("2~1.message*", "hyperquicksort:checked", "memory", vec![]),
        ("3~2.block", "hyperquicksort:checked", "memory", vec![]),
        ("0~1.block", "auto:checked", "memory", vec![]),
        ("0~0.input", "auto:checked", "memory", vec![]),
        ("2~3.result", "hyperquicksort:checked", "memory", vec![]),
        (
            "1~4.order",
            "hyperquicksort:checked:dense",
            "reload",
            vec![],
        ),
        ("1~2.message", "bitonic:checked", "memory", vec![]),
        ("1~2.message", "bitonic:reliable", "memory", vec![]),
        (
            "1~1.message 2@1.recover",
            "hyperquicksort:checked",
            "memory",
            vec![2],
        ),
    ] {
        trials.push(Trial::test(
            format!("{faults} is made good, {algorithm}, {store}"),
            move || {
                let replicas = if dead.is_empty() { "1" } else { "2" };
                let sort = Sort {
                    faults: faults.into(),
                    algorithm,
                    store,
                    replicas,
                    dead,
                    ..Sort::default()
                };
                let times = if faults.ends_with('*') { "2" } else { "1" };
                sort.comes_out_right_after(&format!(" corruptions={times} "))
            },
        ));
    }
    trials.push(Trial::test("a change without copies is refused", || {
        let sort = Sort {
            faults: "1~1.message".into(),
            algorithm: "hyperquicksort:checked",
            store: "none",
            last: "-",
            ..Sort::default()
        };
        sort.fails_with("-41", &["rank 1 is accused"])
    }));
    // Each of the predicates of 1989 says what it found; what is believed before it is found is in the
    // copies too.
    for (faults, status, found) in [
        ("1~4.message", "0", "corruptions=1 found=consistency, "),
        ("0~5.message", "0", "corruptions=1 found=feasibility, "),
        ("2~3.message", "-41", "corruptions=9 found=consistency, "),
    ] {
        trials.push(Trial::test(
            format!("{faults} with the predicates alone: {found}"),
            move || {
                let sort = Sort {
                    faults: faults.into(),
                    algorithm: "bitonic:reliable",
                    count: "50",
                    last: "-",
                    ..Sort::default()
                };
                match status {
                    "0" => sort.comes_out_right_after(found),
                    _ => sort.fails_with(status, &[found]),
                }
            },
        ));
    }
    // Six steps of exchanges on eight nodes, each of which repeats what others have said.
    for (faults, corruptions, dead) in [
        ("5@3.send", 0, vec![5]),
        ("0@1.stored 6@5.begin", 0, vec![0, 6]),
        ("1~2.message 4@4.send", 1, vec![4]),
    ] {
        trials.push(Trial::test(
            format!("{faults} of 8 ranks with the predicates and digests"),
            move || {
                let sort = Sort {
                    faults: faults.into(),
                    algorithm: "bitonic:reliable:checked",
                    count: "200",
                    ranks: 8,
                    replicas: "2",
                    dead,
                    ..Sort::default()
                };
                sort.comes_out_right_after(&format!(" corruptions={corruptions} "))
            },
        ));
    }
    for (ranks, what) in [(2, ""), (4, ""), (3, ""), (4, "clean")] {
        trials.push(Trial::test(
            format!("many changes, one after the other, on {ranks} ranks {what}"),
            move || {
                let folder = scratch()?;
                let place = folder.display().to_string();
                let program = program("tests/c/injections.c")?;
                let mut arguments = vec!["400", "250", &place];
                arguments.extend((!what.is_empty()).then_some(what));
                let text = launch(ranks, "", &program, &arguments)?;
                fs::remove_dir_all(folder)?;
                match text.contains(" failed=0") {
                    true => Ok(()),
                    false => Err(text.into()),
                }
            },
        ));
    }
    for algorithm in ["auto:checked", "bitonic:reliable"] {
        trials.push(Trial::test(
            format!("nothing is found where nothing is wrong, {algorithm}"),
            move || {
                let sort = Sort {
                    algorithm,
                    ..Sort::default()
                };
                sort.comes_out_right_after(" corruptions=0 ")
            },
        ));
    }
    trials
}

/// A rank is stopped, which MPI does not notice: the others give up, and say so.
fn a_stopped_rank_is_given_up() -> Result<(), Failed> {
    let folder = scratch()?;
    let place = folder.display().to_string();
    let launch = Launch {
        ranks: 4,
        faults: "",
        ulfm: true,
    };
    let arguments = [
        "run", &place, "20000", "i32", "random", "memory", "1", "agree", "auto",
    ];
    let arguments = [&arguments[..], &["stop"]].concat();
    let mut command = launch.command(&program("tests/c/sorter.c")?, &arguments);
    let mut mpirun = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let others = [0, 2, 3].map(|rank| folder.join(format!("status.{rank}")));
    let start = Instant::now();
    while !others.iter().all(|file| file.exists()) && start.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(100));
    }
    // mpirun does not return while a stopped process is there.
    if let Ok(pid) = fs::read_to_string(folder.join("stopped")) {
        Command::new("kill").args(["-KILL", pid.trim()]).status()?;
    }
    mpirun.wait()?;
    for file in others {
        let left = fs::read_to_string(&file)?;
        if !left.starts_with("status=-61 ") || !left.contains("stopped") {
            return Err(format!("{}: {left}", file.display()).into());
        }
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}

fn header_compiles() -> Result<(), Failed> {
    let folder = scratch()?;
    let source = folder.join("only_the_header.c");
    fs::write(
        &source,
        "#include \"ftsort.h\"\nint main(void) { return 0; }\n",
    )?;
    let mut sources = vec![source];
    for folder in ["c_examples", "c_examples/original"] {
        for entry in fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "c") {
                sources.push(path);
            }
        }
    }
    for source in &sources {
        for standard in ["c99", "c11", "c17"] {
            run(compiler(standard).arg("-fsyntax-only").arg(source))?;
        }
        for standard in ["c++11", "c++17"] {
            run(compiler(standard)
                .args(["-x", "c++", "-fsyntax-only"])
                .arg(source))?;
        }
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn examples() -> Vec<Trial> {
    let mut trials = vec![Trial::test(
        "the header and the examples compile as C and C++",
        header_compiles,
    )];
    for (ranks, faults) in [(1, ""), (3, ""), (4, "2@1"), (4, "0@0.stored 3@2")] {
        trials.push(Trial::test(
            format!("handshake on {ranks} ranks, faults {faults:?}"),
            move || {
                let text = launch(ranks, faults, &program("c_examples/handshake.c")?, &[])?;
                // "rank R of P: ... blocks: B, in order", from each survivor.
                let held = text.lines().filter(|line| line.ends_with(", in order"));
                let held = held.filter_map(|line| line.split("blocks: ").nth(1)?.split(',').next());
                let blocks: usize = held.filter_map(|count| count.parse::<usize>().ok()).sum();
                match blocks == ranks.next_power_of_two() {
                    true => Ok(()),
                    false => Err(format!("{blocks} blocks: {text}").into()),
                }
            },
        ));
    }
    for (ranks, faults, survivors) in [
        (1, "", 1),
        (4, "", 4),
        (4, "1@0 2@1", 2),
        (6, "0@1 3@1 5@2", 3),
    ] {
        trials.push(Trial::test(
            format!("fault_loop on {ranks} ranks, faults {faults:?}"),
            move || {
                let text = launch(ranks, faults, &program("c_examples/fault_loop.c")?, &[])?;
                let right = text
                    .lines()
                    .filter(|line| line.starts_with("survivor") && line.ends_with("right"))
                    .count();
                match right == survivors {
                    true => Ok(()),
                    false => {
                        Err(format!("{right} of {survivors} survivors were right: {text}").into())
                    }
                }
            },
        ));
    }
    for (ranks, faults, survivors, shared) in [
        (1, "", 1, false),
        (4, "", 4, false),
        (3, "1@0", 2, false),
        (4, "1@0 2@1", 2, false),
        (4, "0@0 1@0 2@0", 1, true),
        (6, "0@1 3@1 5@2", 3, true),
        (8, "0@0 7@0 3@1 4@1 5@2 6@2 1@2", 1, true),
    ] {
        let store = if shared { "a directory" } else { "memory" };
        trials.push(Trial::test(
            format!("workflow on {ranks} ranks, {store}, faults {faults:?}"),
            move || {
                let folder = scratch()?;
                let mut arguments = vec!["20000"];
                let place = folder.display().to_string();
                if shared {
                    arguments.push(&place);
                }
                let program = program("c_examples/workflow.c")?;
                let text = launch(ranks, faults, &program, &arguments)?;
                let right = text.lines().filter(|line| line.ends_with("tries, right"));
                let (right, left) = (right.count(), fs::read_dir(&folder)?.count());
                fs::remove_dir_all(&folder)?;
                match (right == survivors, left) {
                    (true, 0) => Ok(()),
                    _ => Err(format!("{right} of {survivors} right, {left} files: {text}").into()),
                }
            },
        ));
    }
    for (ranks, faults, holds) in [
        (3, "", "blocks here: 1, "),
        (4, "", "blocks here: 1, "),
        (4, "1@1.send", "blocks here: 2, "),
        (4, "0@1.stored", "blocks here: 2, "),
    ] {
        trials.push(Trial::test(
            format!("records on {ranks} ranks, faults {faults:?}"),
            move || {
                let text = launch(ranks, faults, &program("c_examples/records.c")?, &[])?;
                // A line for each sort, from the lowest survivor; the last result is dense.
                let sorts = text.lines().filter(|line| line.contains(" stars from "));
                let sorts: Vec<&str> = sorts.collect();
                let wanted = [holds, holds, holds, "blocks here: 1, "];
                let right = sorts.iter().zip(wanted);
                let right = right
                    .filter(|(line, blocks)| line.contains(blocks) && line.ends_with(", in order"));
                match (sorts.len(), right.count()) {
                    (4, 4) => Ok(()),
                    _ => Err(text.into()),
                }
            },
        ));
    }
    trials
}

/// Trees: their examples, which check their results themselves, and what happens to arguments.
fn trees() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (example, ranks, arguments, faults) in [
        ("tree_sort", 1, "5000", ""),
        ("tree_sort", 4, "50000", ""),
        ("tree_sort", 5, "20000 0-1,2-3,1-3 4", ""),
        ("tree_sort", 4, "50000", "2@2.send"),
        ("tree_sort", 4, "50000 0-1", "2@2"),
        ("tree_sort", 6, "20000 0-1,0-2 5", "3@1 5@2 1@2.send"),
        ("tree_sort", 4, "50000 - 2", "2@2"),
        ("tree_sort", 4, "50000", "0@1 1@1"),
        ("matrix_vector", 1, "64", ""),
        ("matrix_vector", 4, "256", ""),
        ("matrix_vector", 8, "300 0-4,1-3,2-6", ""),
        ("matrix_vector", 4, "256 0-2", "1@2.send"),
        ("matrix_vector", 6, "100", "0@1 4@2.send"),
        ("matrix_vector", 8, "256 4-5,2-3", "0@2 7@2.send"),
    ] {
        trials.push(Trial::test(
            format!("{example} {arguments} on {ranks} ranks, faults {faults:?}"),
            move || {
                let program = program(&format!("c_examples/{example}.c"))?;
                let arguments: Vec<&str> = arguments.split(' ').collect();
                let text = launch(ranks, faults, &program, &arguments)?;
                let right = text.lines().filter(|line| line.ends_with(", right"));
                match right.count() {
                    1 => Ok(()),
                    right => Err(format!("{right} results are right: {text}").into()),
                }
            },
        ));
    }
    for ranks in [2, 3, 4] {
        trials.push(Trial::test(format!("trees on {ranks} ranks"), move || {
            let text = launch(ranks, "", &program("tests/c/tree.c")?, &["args"])?;
            match text.contains("tree: fine") {
                true => Ok(()),
                false => Err(text.into()),
            }
        }));
    }
    for (who, survivors, told) in [
        ("none", 4, "gather: status=0 lost=-1"),
        ("sink", 3, "gather: status=-40 lost=1"),
        ("owner", 3, "gather: status=-40 lost=3"),
    ] {
        trials.push(Trial::test(
            format!("a result is handed out tree by tree, dies: {who}"),
            move || {
                let text = launch(4, "", &program("tests/c/tree.c")?, &["gather", who])?;
                let right = text.lines().filter(|line| *line == told).count();
                match right == survivors {
                    true => Ok(()),
                    false => Err(format!("{right} of {survivors} say {told}: {text}").into()),
                }
            },
        ));
    }
    trials
}

/// Algorithms of a caller's own: their examples, which check their results themselves, and what callbacks are
/// told and may do.
fn rounds() -> Vec<Trial> {
    let mut trials = Vec::new();
    // One in a round: a state has one copy, and its rank and the copy's at once would be a loss.
    for (example, arguments, ranks, faults) in [
        ("prefix_sum", "1000", 1, ""),
        ("prefix_sum", "300000", 4, "1@1.send 2@2.store"),
        ("prefix_sum", "200000", 5, "0@1 4@2.send 2@3.store"),
        ("transpose", "100", 4, "3@1.stored 0@2.send"),
        ("transpose", "60", 6, "5@1.send 0@2.store 3@3.commit"),
        ("fft", "15", 3, "one seed=5 window=10ms"),
        ("fft", "15", 4, "1@1.store 2@2.send"),
        ("fft", "10", 4, "0@1.send 1@2.send 3@3"),
        ("kmeans", "5 30", 4, "0@2.send 3@5.store"),
        ("kmeans", "3 20", 5, "4@1 1@3.send 2@4.store"),
        ("bitonic_sort", "50000", 4, "2@1.send 1@2.store 0@3.send"),
        ("bitonic_sort", "20000", 6, "5@1.store 3@2.send 1@4.stored"),
    ] {
        trials.push(Trial::test(
            format!("{example} {arguments} on {ranks} ranks, faults {faults:?}"),
            move || {
                let program = program(&format!("c_examples/{example}.c"))?;
                let file = program.display().to_string();
                let mut words: Vec<&str> = arguments.split(' ').collect();
                if example == "kmeans" {
                    words.insert(0, &file);
                }
                let text = launch(ranks, faults, &program, &words)?;
                all_nodes(&text, ranks).map(|_| ())
            },
        ));
    }
    trials.push(Trial::test("prefix_sum_mpi on 4 ranks", || {
        let text = launch(4, "", &program("c_examples/prefix_sum_mpi.c")?, &["1000"])?;
        match text
            .lines()
            .filter(|line| line.ends_with(": right"))
            .count()
        {
            4 => Ok(()),
            _ => Err(text.into()),
        }
    }));
    for ranks in [2, 5] {
        trials.push(Trial::test(format!("rounds on {ranks} ranks"), move || {
            let folder = scratch()?;
            let place = folder.display().to_string();
            let text = launch(ranks, "", &program("tests/c/rounds.c")?, &["args", &place])?;
            fs::remove_dir(&folder)?;
            match text.contains("rounds: fine") {
                true => Ok(()),
                false => Err(text.into()),
            }
        }));
    }
    for (what, store, ranks, faults) in [
        ("gather", "memory", 4, "2@1.send"),
        ("gather", "memory", 5, "4@0 0@2.stored 1@3.recover"),
        ("gather", "directory", 4, "0@1 1@1.recover 2@2.stored"),
        ("gather", "reload", 3, "1@2.store"),
        ("gather", "checked", 4, "1~1.message 3~2.block"),
        ("sort", "memory", 4, "1@1.send 3@2"),
        ("sort", "directory", 3, "0@1.store 2@2.send"),
    ] {
        trials.push(Trial::test(
            format!("rounds that {what}, {store}, {ranks} ranks, faults {faults}"),
            move || rounds_with_faults(what, store, ranks, faults),
        ));
    }
    trials.push(Trial::test("rounds without a store lose what dies", || {
        let program = program("tests/c/rounds.c")?;
        let text = launch(3, "1@2.send", &program, &["gather", "none"])?;
        match text
            .lines()
            .filter(|line| line.starts_with("status=-40"))
            .count()
        {
            2 => Ok(()),
            _ => Err(text.into()),
        }
    }));
    trials
}

/// What was said of each node, in order: one says it, and it is right.
fn all_nodes(text: &str, ranks: usize) -> Result<Vec<&str>, Failed> {
    let nodes = 0..ranks.next_power_of_two();
    let said = nodes.map(|node| {
        let mut lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(&format!("node {node}"));
            rest.is_some_and(|rest| rest.starts_with([' ', ':']))
        });
        match (lines.next(), lines.next()) {
            (Some(line), None) if line.contains(": right") => Ok(line),
            _ => Err(format!("node {node}: {text}").into()),
        }
    });
    said.collect()
}

fn rounds_with_faults(what: &str, store: &str, ranks: usize, faults: &str) -> Result<(), Failed> {
    let folder = scratch()?;
    let place = folder.display().to_string();
    let text = launch(
        ranks,
        faults,
        &program("tests/c/rounds.c")?,
        &[what, store, &place],
    )?;
    let left = fs::read_dir(&folder)?.count();
    fs::remove_dir_all(&folder)?;
    if left > 0 {
        return Err(format!("{left} files are left: {text}").into());
    }
    let said = all_nodes(&text, ranks)?;
    if what != "sort" {
        return Ok(());
    }
    // "node V: right, K numbers from A to B"
    let (mut total, mut last) = (0, i64::MIN);
    for line in said {
        let numbers: Vec<i64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [count, first, end] = numbers[..] else {
            return Err(text.into());
        };
        if count > 0 && first < last {
            return Err(format!("not in order from node to node: {text}").into());
        }
        last = if count > 0 { end } else { last };
        total += count;
    }
    let brought = (0..ranks as i64).map(|rank| if rank == 2 { 0 } else { 500 + 37 * rank });
    match total == brought.sum::<i64>() {
        true => Ok(()),
        false => Err(format!("{total} numbers: {text}").into()),
    }
}

/// The authors' programs: arguments and files as theirs, and every list where it belongs.
fn originals() -> Vec<Trial> {
    let programs = [
        "hyperquicksort",
        "quickmerge",
        "quickmerge_modified",
        "bitonic",
    ];
    let mut trials = Vec::new();
    for (number, name) in programs.into_iter().enumerate() {
        for (ranks, count) in [(4, 100_000_u64), (5, 100_003)] {
            trials.push(Trial::test(
                format!("{name} as the authors' program, {ranks} ranks, all scenarios"),
                move || {
                    let mut state = number as u64 + count;
                    let mut draw = || {
                        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        (state >> 32) as i32
                    };
                    let mut keys: Vec<i32> = (0..count).map(|_| draw()).collect();
                    let folder = scratch()?;
                    let bytes = |keys: &[i32]| {
                        keys.iter()
                            .flat_map(|k| k.to_ne_bytes())
                            .collect::<Vec<u8>>()
                    };
                    fs::write(folder.join("Entrada.dat"), bytes(&keys))?;
                    keys.sort_unstable();
                    for scenario in ["0", "1", "2", "3"] {
                        original(&folder, name, ranks, count, scenario, &bytes(&keys))?;
                    }
                    Ok(fs::remove_dir_all(&folder)?)
                },
            ));
        }
    }
    trials
}

fn original(
    folder: &Path,
    name: &str,
    ranks: usize,
    count: u64,
    scenario: &str,
    sorted: &[u8],
) -> Result<(), Failed> {
    let program = program(&format!("c_examples/original/{name}.c"))?;
    let first = match name {
        "bitonic" => count.to_string(),
        _ => "Entrada.dat".to_string(),
    };
    let launch = Launch {
        ranks,
        faults: "",
        ulfm: true,
    };
    let mut command = launch.command(&program, &[&first, scenario, "11"]);
    let text = run(command.current_dir(folder))?;
    let mut lists = Vec::new();
    for rank in 0..ranks.next_power_of_two() {
        let list = folder.join(format!("saveRank{rank}.dat"));
        lists.extend(fs::read(&list)?);
        fs::remove_file(list)?;
    }
    let left = fs::read_dir(folder)?.count();
    match (lists == sorted, left, text.contains("Total time: ")) {
        (true, 1, true) => Ok(()),
        (right, left, _) => {
            Err(format!("scenario {scenario}: sorted: {right}, {left} files: {text}").into())
        }
    }
}

/// A program that says whether it is fine, or has been skipped for want of threads.
fn with_threads(
    ranks: usize,
    faults: &str,
    name: &str,
    arguments: &[&str],
) -> Result<Completion, Failed> {
    let program = program(&format!("tests/c/{name}.c"))?;
    let (skipped, fine) = (format!("{name}: skipped"), format!("{name}: fine"));
    let text = launch(ranks, faults, &program, arguments);
    let text = text.or_else(|error| match error.message() {
        Some(told) if told.contains(&skipped) => Ok(told.to_string()),
        _ => Err(error),
    })?;
    if text.contains(&skipped) {
        return Ok(Completion::ignored_with("MPI allows no such threads"));
    }
    match text.contains(&fine) {
        true => Ok(Completion::Completed),
        false => Err(text.into()),
    }
}

/// Who is slow is left out, and comes back.
fn monitors() -> Vec<Trial> {
    let mut trials = Vec::new();
    for mode in ["thread", "foreground"] {
        for ranks in [1, 3] {
            let name = format!("monitors as documented, {mode}, {ranks} ranks");
            let body = move || with_threads(ranks, "", "monitor", &[mode, "arguments"]);
            trials.push(Trial::ignorable_test(name, body));
        }
        for (ranks, victim) in [(2, "1"), (4, "0"), (5, "2")] {
            let name = format!("rank {victim} of {ranks} is slow for a while, monitor {mode}");
            let body = move || with_threads(ranks, "", "monitor", &[mode, "slow", victim]);
            trials.push(Trial::ignorable_test(name, body));
        }
        trials.extend(killed_while_left_out(mode));
    }
    // Of two ranks each sees only the other, and a slow tester takes that for slow.
    let cases = [
        ("thread", 4, "weights", "2"),
        ("foreground", 4, "weights", "0"),
        ("foreground", 2, "weights", "1"),
        ("foreground", 4, "gain", "1"),
    ];
    for (mode, ranks, what, victim) in cases {
        let name = format!("rank {victim} of {ranks} is slow, {what}, monitor {mode}");
        let body = move || with_threads(ranks, "", "monitor", &[mode, what, victim]);
        trials.push(Trial::ignorable_test(name, body));
    }
    trials
}

/// Who is left out dies, or who covers it, soon after it was left out or later.
fn killed_while_left_out(mode: &'static str) -> Vec<Trial> {
    let cases = [
        (4, "2", "2", "1"),
        (4, "2", "3", "1"),
        (4, "1", "0", "2"),
        (5, "4", "0", "7"),
        (3, "0", "0", "9"),
        (2, "1", "0", "3"),
    ];
    let trial = |(ranks, slow, victim, when): (usize, &'static str, &'static str, &'static str)| {
        let who = if slow == victim { "it" } else { "its cover" };
        let name =
            format!("rank {slow} of {ranks} is left out, {who} dies, {when}, monitor {mode}");
        let arguments = [mode, slow, victim, when];
        let body = move || with_threads(ranks, "", "monitor_kills", &arguments);
        Trial::ignorable_test(name, body)
    };
    cases.into_iter().map(trial).collect()
}

fn interface() -> Vec<Trial> {
    let mut trials = Vec::new();
    for ranks in [2, 3] {
        trials.push(Trial::test(
            format!("the C interface as documented, {ranks} ranks"),
            move || {
                let folder = scratch()?;
                let text = launch(
                    ranks,
                    "",
                    &program("tests/c/api.c")?,
                    &[&folder.display().to_string()],
                )?;
                if !text.contains("api: fine") {
                    return Err(text.into());
                }
                match fs::read_dir(&folder)?.count() {
                    0 => Ok(fs::remove_dir(&folder)?),
                    files => Err(format!("{files} files left in {}", folder.display()).into()),
                }
            },
        ));
    }
    for (ranks, seconds) in [(1, "1"), (3, "3")] {
        trials.push(Trial::test(
            format!("any arguments get a status and do no harm, {ranks} ranks"),
            move || {
                let folder = scratch()?;
                let place = folder.display().to_string();
                // The seed is always the same: another one is a find, and not this change's failure.
                let arguments = [&place[..], seconds, "1"];
                let text = launch(ranks, "", &program("tests/c/arguments.c")?, &arguments)?;
                match text.contains("arguments: fine") {
                    true => Ok(fs::remove_dir(&folder)?),
                    false => Err(text.into()),
                }
            },
        ));
    }
    for ranks in [1, 3, 4] {
        trials.push(Trial::test(
            format!("records of every kind by every algorithm, {ranks} ranks"),
            move || {
                let text = launch(ranks, "", &program("tests/c/records.c")?, &[])?;
                match text.contains("records: fine") {
                    true => Ok(()),
                    false => Err(text.into()),
                }
            },
        ));
    }
    for ranks in [2, 4] {
        for (part, title) in [
            ("turns", "two groups in turns"),
            ("part", "groups of a part of the ranks"),
            ("relay", "a group for each thread, one after the other"),
            ("threads", "a group for each thread, all at once"),
        ] {
            let trial = Trial::ignorable_test(format!("{title}, {ranks} ranks"), move || {
                with_threads(ranks, "", "groups", &[part])
            });
            trials.push(trial);
        }
    }
    for (last, status, words) in [
        ("-", "status=-20 ", "--with-ft ulfm"),
        ("accept", "status=0 ", ""),
    ] {
        trials.push(Trial::test(
            format!("without --with-ft ulfm, {last:?}: {status}"),
            move || {
                let folder = scratch()?;
                let place = folder.display().to_string();
                let arguments = [
                    "run", &place, "10", "i32", "random", "memory", "1", "agree", "auto", last,
                ];
                let off = Launch {
                    ranks: 2,
                    faults: "",
                    ulfm: false,
                };
                // The program aborts where it is refused, after it has written down why.
                let _ = run(&mut off.command(&program("tests/c/sorter.c")?, &arguments));
                let left = fs::read_to_string(folder.join("status.0"))?;
                fs::remove_dir_all(&folder)?;
                match left.starts_with(status) && left.contains(words) {
                    true => Ok(()),
                    false => Err(left.into()),
                }
            },
        ));
    }
    trials
}

fn sorts_without_faults() -> Vec<Trial> {
    let mut cases = Vec::new();
    for (index, kind) in ["i32", "u32", "i64", "u64", "f32", "f64"]
        .into_iter()
        .enumerate()
    {
        cases.push(Sort {
            kind,
            ranks: [1, 2, 3, 4, 5, 8][index],
            ..Sort::default()
        });
    }
    for (index, shape) in [
        "equal", "few", "sorted", "reversed", "holes", "one", "empty",
    ]
    .into_iter()
    .enumerate()
    {
        let store = ["memory", "directory", "none"][index % 3];
        cases.push(Sort {
            shape,
            store,
            ranks: [4, 6, 7][index % 3],
            ..Sort::default()
        });
    }
    cases.push(Sort {
        count: "3",
        ranks: 8,
        ..Sort::default()
    });
    cases.push(Sort {
        algorithm: "hyperquicksort:paper",
        store: "none",
        ..Sort::default()
    });
    cases.push(Sort {
        algorithm: "hyperquicksort:paper",
        shape: "holes",
        ranks: 5,
        ..Sort::default()
    });
    for (index, algorithm) in [
        "auto",
        "auto:dense",
        "samplesort",
        "quickmerge",
        "quickmerge:paper",
        "quickmerge_modified:paper:dense",
        "bitonic",
        "bitonic:dense",
        "hyperquicksort:dense",
    ]
    .into_iter()
    .enumerate()
    {
        cases.push(Sort {
            algorithm,
            shape: ["random", "few", "holes"][index % 3],
            ranks: [5, 8, 3, 4][index % 4],
            ..Sort::default()
        });
    }
    cases.push(Sort {
        algorithm: "bitonic_merge",
        shape: "bitonic",
        ..Sort::default()
    });
    cases.push(Sort {
        repair: "shrink",
        ..Sort::default()
    });
    cases.push(Sort {
        count: "3000000",
        ranks: 2,
        ..Sort::default()
    });
    let trial = |sort: Sort<'static>| {
        let name = format!(
            "{} ranks sort {} {} {}, {}, {}",
            sort.ranks, sort.count, sort.shape, sort.kind, sort.store, sort.algorithm
        );
        Trial::test(name, move || sort.comes_out_right())
    };
    cases.into_iter().map(trial).collect()
}

/// A death at every point of every round, and some at once or one after the other.
fn kills() -> Vec<Trial> {
    let mut trials = Vec::new();
    for round in 0..4 {
        for (index, point) in ["begin", "send", "store", "stored", "commit"]
            .into_iter()
            .enumerate()
        {
            if point == "send" && (round == 0 || round == 3) {
                continue;
            }
            let rank = (round + index) % 4;
            let faults = format!("{rank}@{round}.{point}");
            // Once the last round is agreed on the result is released, and with it lost.
            let released = round == 3 && point == "commit";
            let store = if index % 2 == 0 {
                "memory"
            } else {
                "directory"
            };
            trials.push(Trial::test(
                format!("rank {faults} of 4, {store}"),
                move || {
                    let dead = vec![rank];
                    let sort = Sort {
                        faults,
                        store,
                        dead,
                        ..Sort::default()
                    };
                    match released {
                        true => {
                            let folder = scratch()?;
                            sort.statuses(&folder)?;
                            Ok(fs::remove_dir_all(&folder)?)
                        }
                        false => sort.comes_out_right(),
                    }
                },
            ));
        }
    }
    for (faults, dead, ranks, store, replicas) in [
        ("0@0 1@0 2@0", vec![0, 1, 2], 4, "directory", "0"),
        (
            "0@1 1@1.recover 2@2.send 3@2.recover",
            vec![0, 1, 2, 3],
            5,
            "directory",
            "0",
        ),
        (
            "7@1 6@1 5@1.send 4@2.stored 3@2.recover 2@3 1@4",
            vec![1, 2, 3, 4, 5, 6, 7],
            8,
            "directory",
            "0",
        ),
        (
            "7@1 6@1 5@1.send 4@2.stored 3@2.recover 2@3 1@4",
            vec![1, 2, 3, 4, 5, 6, 7],
            8,
            "memory",
            "7",
        ),
        ("0@1 1@2 2@3", vec![0, 1, 2], 4, "memory", "1"),
        ("0@1.recover 3@1 6@2", vec![0, 3, 6], 7, "memory", "2"),
    ] {
        trials.push(Trial::test(
            format!("{faults} of {ranks}, {store} {replicas}"),
            move || {
                Sort {
                    faults: faults.into(),
                    dead,
                    ranks,
                    store,
                    replicas,
                    ..Sort::default()
                }
                .comes_out_right()
            },
        ));
    }
    trials.push(Trial::test(
        "without a store a fault loses data, on all survivors alike",
        || {
            let faults = "1@2".to_string();
            Sort {
                faults,
                dead: vec![1],
                store: "none",
                last: "-",
                ..Sort::default()
            }
            .fails_with("-40", &["lost=1, ", "rank 1"])
        },
    ));
    trials.push(Trial::test(
        "a node and its only copy at once are lost, on all survivors alike",
        || {
            let faults = "2@2.send 3@2.send".to_string();
            Sort {
                faults,
                dead: vec![2, 3],
                last: "-",
                ..Sort::default()
            }
            .fails_with("-40", &["lost=2,3, ", "rank 2, 3"])
        },
    ));
    trials.push(Trial::test(
        "a rank that is stopped is given up after the timeout",
        a_stopped_rank_is_given_up,
    ));
    trials.push(Trial::test(
        "what was reloaded must be what was lost",
        || {
            let faults = "1@2".to_string();
            Sort {
                faults,
                dead: vec![1],
                store: "reload",
                last: "liar",
                ..Sort::default()
            }
            .fails_with("-23", &["for rank 1", "they are others"])
        },
    ));
    trials.push(Trial::test(
        "too little memory is said before it is used",
        || {
            Sort {
                count: "3000000",
                last: "memory=20000000",
                ..Sort::default()
            }
            .fails_with("-21", &["would exceed the limit of 20000000"])
        },
    ));
    trials.push(Trial::test("too few survivors do not go on", || {
        let faults = "0@1 2@2.send".to_string();
        Sort {
            faults,
            dead: vec![0, 2],
            store: "directory",
            last: "quorum=3",
            ..Sort::default()
        }
        .fails_with("-60", &["2 of 4 ranks are left", "3 must be"])
    }));
    trials.push(Trial::test(
        "a timeout that is long enough changes nothing",
        || {
            let faults = "0@1 3@2.send 1@2.recover".to_string();
            Sort {
                faults,
                dead: vec![0, 1, 3],
                store: "directory",
                last: "timeout=20000",
                ..Sort::default()
            }
            .comes_out_right()
        },
    ));
    for (ranks, faults, dead) in [
        (4, "2@0.stored", vec![2]),
        (4, "0@1 1@2 2@3", vec![0, 1, 2]),
        (5, "1@1.send 2@1.send 3@1.recover", vec![1, 2, 3]),
    ] {
        trials.push(Trial::test(
            format!("{faults} of {ranks}, reload"),
            move || {
                Sort {
                    ranks,
                    faults: faults.to_string(),
                    dead,
                    store: "reload",
                    ..Sort::default()
                }
                .comes_out_right()
            },
        ));
    }
    for (algorithm, store, faults, dead) in [
        ("samplesort", "memory", "1@0.stored", vec![1]),
        ("samplesort", "memory", "2@1.begin", vec![2]),
        ("samplesort", "memory", "0@1.send", vec![0]),
        ("samplesort", "directory", "0@1.stored 3@2", vec![0, 3]),
        ("samplesort:dense", "memory", "3@1.commit", vec![3]),
        (
            "samplesort:dense",
            "directory",
            "1@3.send 2@3.recover",
            vec![1, 2],
        ),
        ("quickmerge", "memory", "0@1", vec![0]),
        (
            "quickmerge_modified:paper",
            "reload",
            "1@2.send 2@2.send",
            vec![1, 2],
        ),
        ("bitonic", "memory", "2@2.send", vec![2]),
        ("bitonic", "directory", "0@1 1@2.stored 2@4", vec![0, 1, 2]),
        ("bitonic:dense", "reload", "3@3.send 0@3.send", vec![0, 3]),
        ("hyperquicksort:dense", "memory", "1@4.begin", vec![1]),
    ] {
        trials.push(Trial::test(
            format!("{faults}, {algorithm}, {store}"),
            move || {
                Sort {
                    algorithm,
                    faults: faults.to_string(),
                    dead,
                    store,
                    ..Sort::default()
                }
                .comes_out_right()
            },
        ));
    }
    trials.push(Trial::test(
        "what is not bitonic is refused on all ranks",
        || {
            Sort {
                algorithm: "bitonic_merge",
                shape: "bitonic",
                ranks: 3,
                ..Sort::default()
            }
            .fails_with("-1", &["equal shares, on 2^d ranks"])
        },
    ));
    trials.push(Trial::test(
        "the papers' repair survives a single fault",
        || {
            let faults = "1@2".to_string();
            Sort {
                faults,
                dead: vec![1],
                repair: "shrink",
                ..Sort::default()
            }
            .comes_out_right()
        },
    ));
    trials
}

/// What stands behind `"name":` in a line of a trace, without quotation marks.
fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    let rest = rest.trim_start_matches('"');
    rest.split(['"', ',', '}']).next()
}

fn number(line: &str, name: &str) -> u64 {
    let text = member(line, name).and_then(|text| text.parse().ok());
    text.unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// Spans follow each other, and are within the whole sort; events come after them.
fn spans_are_disjoint(lines: &[&str]) -> Result<(), Failed> {
    let (mut end, mut begun) = (0, false);
    for line in lines {
        match member(line, "ph") {
            Some("B") => begun = true,
            Some("X") if member(line, "bind_id").is_none() => {
                let start = number(line, "ts");
                if start < end {
                    return Err(format!("{line} begins before {end}").into());
                }
                end = start + number(line, "dur");
            }
            // Read from another clock, but after the phase that came to it.
            Some("i") if number(line, "ts") + 20 < end => {
                return Err(format!("{line} is before {end}").into());
            }
            Some("E") if begun && number(line, "ts") >= end => begun = false,
            Some("E") => return Err(format!("{line} ends too much").into()),
            _ => {}
        }
    }
    Ok(())
}

/// A traced sort on four ranks, of which these die: what is in whose file, and in the merged one.
fn trace_tells(faults: &str, dead: &[usize]) -> Result<(), Failed> {
    let folder = scratch()?;
    let place = folder.display().to_string();
    let arguments = [
        "run",
        &place,
        "20000",
        "i32",
        "random",
        "memory",
        "1",
        "agree",
        "hyperquicksort",
        "-",
    ];
    let launch = Launch {
        ranks: 4,
        faults,
        ulfm: true,
    };
    let mut command = launch.command(&program("tests/c/sorter.c")?, &arguments);
    run(command.env("FTSORT_TRACE", folder.join("t")))?;
    let expect = |what: &str, holds: bool, text: &str| match holds {
        true => Ok(()),
        false => Err(Failed::from(format!("{faults:?}, {what}: {text}"))),
    };
    let mut all = Vec::new();
    for rank in 0..4 {
        let text = fs::read_to_string(folder.join(format!("t.{rank}.json")))?;
        let lines: Vec<&str> = text.lines().collect();
        let has = |name: &str| lines.iter().any(|line| member(line, "name") == Some(name));
        let whole = |line: &&str| line.starts_with('{') && line.ends_with("}},");
        expect("begins", lines[0] == "[", &text)?;
        expect("whole lines", lines[1..].iter().all(whole), &text)?;
        let name = format!("\"args\":{{\"name\":\"rank {rank}\"}}");
        expect("its name", lines[1].contains(&name), &text)?;
        let own = |line: &&str| member(line, "pid") == Some(&rank.to_string());
        expect("its pid", lines[1..].iter().all(own), &text)?;
        spans_are_disjoint(&lines)?;
        let survives = !dead.contains(&rank);
        for name in ["whole sort", "sort", "store", "commit", "round committed"] {
            expect(name, has(name), &text)?;
        }
        for name in ["exchange", "merge", "send", "receive"] {
            expect(name, has(name) || !survives, &text)?;
        }
        for name in ["fault", "covered", "replay", "repair"] {
            expect(name, has(name) == (survives && !dead.is_empty()), &text)?;
        }
        let ends = lines.iter().filter(|line| member(line, "ph") == Some("E"));
        expect("ends", (ends.count() > 0) == survives, &text)?;
        let found = lines
            .iter()
            .filter(|line| member(line, "name") == Some("fault"));
        let found: Vec<usize> = found.map(|line| number(line, "rank") as usize).collect();
        expect("who died", found.len() == dead.len() || !survives, &text)?;
        expect(
            "who died",
            found.iter().all(|rank| dead.contains(rank)),
            &text,
        )?;
        all.extend(
            lines[1..]
                .iter()
                .map(|line| line.trim_end_matches(',').to_string()),
        );
    }
    let merged = fs::read_to_string(folder.join("t.json"))?;
    // With what follows the last line of each file, JSON has no other form for it.
    let wanted = format!("[\n{}\n]\n", all.join(",\n"));
    expect("all in one", merged == wanted, &merged)?;
    arrows_have_two_ends(&merged, dead.is_empty())?;
    is_json(&merged)?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// No message is sent twice or got twice; and all that were sent were got, unless somebody died.
fn arrows_have_two_ends(merged: &str, all: bool) -> Result<(), Failed> {
    let ids = |name: &str| {
        let lines = merged
            .lines()
            .filter(|line| member(line, "name") == Some(name));
        let mut ids: Vec<(&str, u64)> = lines
            .map(|line| {
                (
                    member(line, "bind_id").unwrap_or_default(),
                    number(line, "bytes"),
                )
            })
            .collect();
        ids.sort_unstable();
        ids
    };
    let (sent, got) = (ids("send"), ids("receive"));
    let twice = |ids: &[(&str, u64)]| ids.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let known = got.iter().all(|id| sent.binary_search(id).is_ok());
    match twice(&sent) || twice(&got) || !known || sent.is_empty() || (all && sent != got) {
        true => Err(format!("sent {sent:?}, got {got:?}").into()),
        false => Ok(()),
    }
}

/// Checked by another program's reader.
fn is_json(text: &str) -> Result<(), Failed> {
    let folder = scratch()?;
    let file = folder.join("trace.json");
    fs::write(&file, text)?;
    let check = "import json, sys; assert len(json.load(open(sys.argv[1]))) > 9";
    run(Command::new("python3").args(["-c", check]).arg(&file))?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// Where the time goes, as the ranks write it down.
fn traces() -> Vec<Trial> {
    let trial = |(faults, dead): (&'static str, &'static [usize])| {
        Trial::test(format!("a trace tells, faults {faults:?}"), move || {
            trace_tells(faults, dead)
        })
    };
    let cases: [(&str, &[usize]); 3] = [("", &[]), ("2@2.send", &[2]), ("0@1.stored", &[0])];
    cases.map(trial).into()
}

fn main() {
    let mut arguments = Arguments::from_args();
    let alone = monitors();
    let others = [
        examples(),
        trees(),
        rounds(),
        originals(),
        interface(),
        sorts_without_faults(),
        changes(),
        kills(),
        traces(),
    ];
    let others = others.into_iter().flatten().collect();
    // Most of a run's time nothing runs: MPI starts, or ends.
    arguments.test_threads.get_or_insert(2);
    let conclusion = libtest_mimic::run(&arguments, others);
    // Who is slow is not to be told by what else runs.
    arguments.test_threads = Some(1);
    let last = libtest_mimic::run(&arguments, alone);
    if conclusion.has_failed() {
        conclusion.exit();
    }
    last.exit();
}
