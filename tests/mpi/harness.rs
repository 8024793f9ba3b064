//! Compiles programs in C, C++ and Fortran against the library, and runs them under `mpirun`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Completion, Failed};

use super::launch::{TIMEOUT, output_of};

/// The time limit of a run, if `FTSORT_MPI_LIMIT` does not name another one. Records of every kind
/// are sorted in 6 seconds, but in more than 60 if another program uses one of two processors.
const LIMIT_SECONDS: &str = "180";

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of this program, of the library that cargo built with it, and of the compiled C programs.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("the test program has a path");
    program.parent().expect("it is in a folder").to_path_buf()
}

/// The folder of the library that is tested.
fn library() -> PathBuf {
    std::env::var_os("FTSORT_LIBRARY_DIR").map_or_else(built, PathBuf::from)
}

/// Programs look for the library by the name that has its version, which cargo does not make.
fn link_versioned_name(library: &Path) -> Result<(), Failed> {
    let (major, minor) = (
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    );
    let link = library.join(format!("libftsort.so.{major}.{minor}"));
    if !link.exists() {
        std::os::unix::fs::symlink("libftsort.so", &link)?;
    }
    Ok(())
}

fn setting(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_string())
}

/// The sanitizer of the compiler that checks the C and C++ programs while they run.
fn sanitizer() -> Option<String> {
    std::env::var("FTSORT_SANITIZER").ok()
}

/// A compiler of C, or of C++ for its standards, with all warnings as errors.
pub fn compiler(standard: &str) -> Command {
    let wrapper = if standard.starts_with("c++") {
        setting("MPICXX", "mpicxx")
    } else {
        setting("MPICC", "mpicc")
    };
    let mut command = Command::new(wrapper);
    command
        .arg(format!("-std={standard}"))
        .args(STRICT)
        .args(["-D_GNU_SOURCE", "-O1"])
        .arg(format!("-I{}", root().join("include").display()));
    command
}

/// Runs a command, and returns its output and its error output if its exit status is 0.
pub fn run(command: &mut Command) -> Result<String, Failed> {
    // About once in a thousand runs, mpirun gives up before it has started any rank. Still more rarely it does not end after
    // its ranks, so that their statuses are not known.
    const NOT_STARTED: &str = "PMIx server's listener thread failed to start";
    const TRIES: usize = 3;
    for attempt in 1.. {
        let ended = output_of(command)?;
        let text = ended.output + &ended.errors;
        if ended.status.success() {
            require(!text.contains("panicked at"), "the output", &text)?;
            return Ok(text);
        }
        if attempt == TRIES || !(ended.was_killed || text.contains(NOT_STARTED)) {
            return Err(format!("{command:?}: {}\n{text}", ended.status).into());
        }
    }
    unreachable!("the last attempt returns")
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|end| end == ending)
}

/// The time of the last change to a source, to the sources that it includes, to the headers beside them, and to those
/// of the library.
fn last_change(source: &Path) -> Result<std::time::SystemTime, Failed> {
    let folder = source.parent().expect("a source is in a folder");
    let mut newest = fs::metadata(source)?.modified()?;
    for line in fs::read_to_string(source)?.lines() {
        let name = line.strip_prefix("#include \"");
        let included = name.map(|name| folder.join(name.trim_end_matches('"')));
        // Headers of the folder itself follow below.
        let is_elsewhere = |path: &PathBuf| {
            has_ending(path, "c") || path.parent() != Some(folder) && path.is_file()
        };
        if let Some(path) = included.filter(is_elsewhere) {
            newest = newest.max(last_change(&path)?);
        }
    }
    let shared = ["include", "include/ftsort", "bindings/fortran"].map(|name| root().join(name));
    for folder in shared.iter().map(PathBuf::as_path).chain([folder]) {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let is_header = has_ending(&path, "h") || has_ending(&path, "hpp");
            if is_header || folder == shared[2] {
                newest = newest.max(entry.metadata()?.modified()?);
            }
        }
    }
    Ok(newest)
}

/// The path beside the compiled programs of a file that is made of a source.
fn compiled(source: &str, ending: &str) -> PathBuf {
    // An example and a test may have the same file name, in another language too.
    let name = source.trim_end_matches(".c").replace(['/', '.'], "-");
    let sanitizer = sanitizer().map(|name| format!("{name}-"));
    built().join(format!("c-{}{name}{ending}", sanitizer.unwrap_or_default()))
}

/// Whether the Fortran compiler, `gfortran` or `FC`, is installed.
pub fn has_fortran() -> bool {
    let version = Command::new(setting("FC", "gfortran"))
        .arg("--version")
        .output();
    version.is_ok_and(|output| output.status.success())
}

/// The object file of a Fortran program, after [`program`] has compiled it.
pub fn fortran_object(source: &str) -> PathBuf {
    compiled(source, ".o")
}

/// Compiles a Fortran program, the module and its C part, and returns the command that links them.
fn fortran_linker(source: &str) -> Result<Command, Failed> {
    let folder = root().join("bindings/fortran");
    let modules = built().join("fortran-modules");
    fs::create_dir_all(&modules)?;
    let c_part = modules.join("ftsort_fortran.o");
    run(compiler("c99")
        .arg("-c")
        .arg(folder.join("ftsort_fortran.c"))
        .arg("-o")
        .arg(&c_part))?;
    let (module, object) = (modules.join("ftsort.o"), fortran_object(source));
    for (file, made) in [
        (folder.join("ftsort.f90"), &module),
        (root().join(source), &object),
    ] {
        // Programs compare floating-point numbers for equality on purpose.
        let mut command = Command::new(setting("FC", "gfortran"));
        command
            .args(["-std=f2008", "-O1", "-c"])
            .args(STRICT)
            .arg("-Wno-compare-reals");
        command.arg("-J").arg(&modules);
        run(command.arg(&file).arg("-o").arg(made))?;
    }
    let mut command = Command::new(setting("MPICC", "mpicc"));
    command.args([object, module, c_part]);
    Ok(command)
}

/// The command that makes a program of a source, as far as its language decides.
fn linker(source: &str) -> Result<Command, Failed> {
    if source.ends_with(".f90") {
        return fortran_linker(source);
    }
    let mut command = compiler(if source.ends_with(".cpp") {
        "c++17"
    } else {
        "c99"
    });
    if let Some(name) = sanitizer() {
        // With a sanitizer, g++ warns of uses of initialised variables.
        command.args([
            &format!("-fsanitize={name}"),
            "-fno-sanitize-recover=all",
            "-Wno-maybe-uninitialized",
        ]);
    }
    command.arg(root().join(source));
    Ok(command)
}

/// Compiles a program of the repository, named by its path, once for all cases.
///
/// The program has no path to the library: each run names the folder.
pub fn program(source: &str) -> Result<PathBuf, Failed> {
    // Two cases that start at the same time would write the same file.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    let library = library();
    link_versioned_name(&library)?;
    let program = compiled(source, "");
    let compiled = fs::metadata(&program).and_then(|data| data.modified());
    let changed = last_change(&root().join(source))?;
    if compiled.is_ok_and(|compiled| compiled > changed) {
        return Ok(program);
    }
    let mut command = linker(source)?;
    command
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", library.display()))
        .args(["-lftsort", "-pthread", "-lm"]);
    if source.ends_with(".f90") {
        command.arg("-lgfortran");
    }
    run(&mut command)?;
    Ok(program)
}

/// The tested library comes first: cargo puts another of its folders there, which may hold an older one.
fn library_path() -> OsString {
    let present = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = [library()]
        .into_iter()
        .chain(std::env::split_paths(&present));
    std::env::join_paths(paths).unwrap_or_default()
}

/// A command that runs a compiled program without `mpirun`.
pub fn single(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library_path());
    command
}

/// A job of `mpirun` with ULFM, which is killed after the time limit. `faults`: the schedule of injected failures.
pub fn job(ranks: usize, faults: &str, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = mpirun(&["--with-ft", "ulfm"], ranks, faults);
    command.arg(program).args(arguments);
    command
}

/// As [`job`], without ULFM and failures.
pub fn job_without_ulfm(ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = mpirun(&[], ranks, "");
    command.arg(program).args(arguments);
    command
}

fn mpirun(options: &[&str], ranks: usize, faults: &str) -> Command {
    let mut command = Command::new(TIMEOUT);
    let limit = setting("FTSORT_MPI_LIMIT", LIMIT_SECONDS);
    command.args(["-k", "2", &limit, "env", "--block-signal=PIPE"]);
    command.arg(setting("MPIRUN", "mpirun")).args(options);
    command.args(["--oversubscribe", "-np", &ranks.to_string()]);
    command.env("FTSORT_FAULTS", faults);
    if let Some(folder) = memory_folder() {
        command.env("OMPI_MCA_btl_sm_backing_directory", folder);
    }
    // MPI does not free all of its memory at its end, nor do killed ranks.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    command.env("LD_LIBRARY_PATH", library_path());
    command
}

/// The folder of the shared memory of jobs that this thread starts: two jobs that run at the same time can have the same
/// number (docs/open-mpi.md, section 16).
fn memory_folder() -> Option<PathBuf> {
    let thread = format!("{:?}", std::thread::current().id());
    let digits = thread.chars().filter(char::is_ascii_digit);
    let folder = memory_folders()?.join(digits.collect::<String>());
    fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

/// The folder of all [`memory_folder`]s, if this system has such files.
fn memory_folders() -> Option<PathBuf> {
    let memory = Path::new("/dev/shm");
    let folder = memory.join(format!("ftsort-mpi-{}", std::process::id()));
    memory.is_dir().then_some(folder)
}

/// Removes what killed ranks have left in shared memory.
pub fn remove_memory_folders() {
    if let Some(folder) = memory_folders() {
        // Without any job there is none.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Runs a compiled program with ULFM, and returns its output.
pub fn launch(
    ranks: usize,
    faults: &str,
    program: &Path,
    arguments: &[impl AsRef<OsStr>],
) -> Result<String, Failed> {
    run(&mut job(ranks, faults, program, arguments)).map_err(|error| {
        let text = error.message().unwrap_or("failed");
        format!("FTSORT_FAULTS={faults:?}: {text}").into()
    })
}

/// A folder of a case, which is removed when the case ends well.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Self, Failed> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ftsort-mpi-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // An earlier process with the same number may have left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path as an argument of a program.
    pub fn argument(&self) -> String {
        self.0.display().to_string()
    }

    pub fn file_names(&self) -> Result<Vec<String>, Failed> {
        let entries = fs::read_dir(&self.0)?.collect::<Result<Vec<_>, _>>()?;
        let names = entries.iter().map(|entry| entry.file_name());
        Ok(names
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    /// Removes the folder with all files.
    pub fn remove(self) -> Result<(), Failed> {
        Ok(fs::remove_dir_all(&self.0)?)
    }

    /// Removes the folder, which must be empty. Otherwise the error has `output`, the output of the program.
    pub fn remove_empty(self, output: &str) -> Result<(), Failed> {
        let files = self.file_names()?;
        if !files.is_empty() {
            return Err(format!("{files:?} are left in {}: {output}", self.0.display()).into());
        }
        self.remove()
    }
}

/// Separates the words of a cell of a table. `DIR` stands for the folder of the case.
pub fn words(cell: &str, folder: &Scratch) -> Vec<String> {
    let words = cell.split(' ').filter(|word| !word.is_empty());
    let folder = folder.argument();
    words
        .map(|word| if word == "DIR" { &folder } else { word }.to_string())
        .collect()
}

/// Runs a program of `tests/c`, or of the named folder of `tests`, that checks everything itself, and prints that it is
/// fine, or that it is skipped because MPI does not grant threads. It must leave the folder of the case empty.
pub fn self_checking(name: &str, ranks: usize, arguments: &str) -> Result<Completion, Failed> {
    let program = program(&source_of(name))?;
    let name = Path::new(name).file_stem().and_then(|stem| stem.to_str());
    let name = name.expect("a source has a name");
    let folder = Scratch::new()?;
    let arguments = words(arguments, &folder);
    let skipped = format!("{name}: skipped");
    let text = launch(ranks, "", &program, &arguments).or_else(|error| match error.message() {
        Some(text) if text.contains(&skipped) => Ok(text.to_string()),
        _ => Err(error),
    })?;
    if text.contains(&skipped) {
        folder.remove()?;
        return Ok(Completion::ignored_with("MPI does not grant threads"));
    }
    if !text.contains(&format!("{name}: fine")) {
        return Err(text.into());
    }
    folder.remove_empty(&text)?;
    Ok(Completion::Completed)
}

/// The source that a table names: `api` of `tests/c`, or `cpp/objects.cpp`.
fn source_of(name: &str) -> String {
    if name.contains('/') {
        format!("tests/{name}")
    } else {
        format!("tests/c/{name}.c")
    }
}

/// The ranks that a schedule of failures kills, as in `1@2.send 3@2`.
pub fn victims(faults: &str) -> Vec<usize> {
    let entries = faults.split(' ').filter_map(|entry| entry.split_once('@'));
    let mut ranks: Vec<usize> = entries.filter_map(|(rank, _)| rank.parse().ok()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Fails with the output unless it has so many lines of this kind, which `what` names.
pub fn require_lines(
    count: usize,
    what: &str,
    output: &str,
    is_counted: impl Fn(&str) -> bool,
) -> Result<(), Failed> {
    let found = output.lines().filter(|line| is_counted(line)).count();
    require(found == count, format!("{found} of {count} {what}"), output)
}

/// Fails with the output if `holds` is false.
pub fn require(holds: bool, what: impl std::fmt::Display, output: &str) -> Result<(), Failed> {
    if holds {
        return Ok(());
    }
    Err(format!("{what}: {output}").into())
}
