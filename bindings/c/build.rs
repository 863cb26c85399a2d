//! Gives the shared library the name under which programs look for it.

fn main() {
    // Programs that were linked with one version of the interface start with no other.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuview.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
