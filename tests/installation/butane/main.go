// Checks a Butane file of this repository as strictly as the programs that read it on a node do
// not: whatever they say, a warning included, is a fault.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	files := flag.String("files-dir", "", "folder that the Butane file takes its local files from")
	units := flag.String("units-to", "", "folder to write the units of the result to")
	flag.Parse()
	if flag.NArg() != 1 || *files == "" {
		fmt.Fprintln(os.Stderr, "usage: butane-check --files-dir DIR [--units-to DIR] FILE.bu")
		os.Exit(2)
	}
	input, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		fail(err.Error())
	}
	result, faults := check(input, *files)
	for _, fault := range faults {
		fmt.Fprintf(os.Stderr, "%s: %s\n", flag.Arg(0), fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
	if *units != "" {
		for name, contents := range result.units {
			if err := os.WriteFile(filepath.Join(*units, name), []byte(contents), 0o644); err != nil {
				fail(err.Error())
			}
		}
	}
	fmt.Printf("%s: good: Ignition %s, %d files, %d units\n",
		flag.Arg(0), result.version, result.files, len(result.units))
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
