//! Tells the programs where the MPI library is: mpi-sys links it, but does not say so.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MPICC");
    let mpicc = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let shown = Command::new(&mpicc).arg("-show").output();
    let shown = shown.unwrap_or_else(|error| panic!("{mpicc}: {error}"));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for folder in shown
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("-L"))
    {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
