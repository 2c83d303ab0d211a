# shellcheck shell=bash
demo() { refuse "demo is not there yet"; }
