package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// butane is what the lab understands of a Butane configuration. Reading is
// strict: a key that is not here is an error and not something left out.
type butane struct {
	Variant string `json:"variant"`
	Version string `json:"version"`
	Storage struct {
		Directories []node `json:"directories"`
		Files       []file `json:"files"`
		Links       []link `json:"links"`
	} `json:"storage"`
	Systemd struct {
		Units []unit `json:"units"`
	} `json:"systemd"`
}

type node struct {
	Path      string       `json:"path"`
	Mode      *fs.FileMode `json:"mode"`
	Overwrite bool         `json:"overwrite"`
}

type file struct {
	node
	Contents struct {
		Local  string `json:"local"`
		Inline string `json:"inline"`
	} `json:"contents"`
}

type link struct {
	node
	Target string `json:"target"`
}

type text struct {
	Name          string `json:"name"`
	Contents      string `json:"contents"`
	ContentsLocal string `json:"contents_local"`
}

type unit struct {
	text
	Enabled bool   `json:"enabled"`
	Mask    bool   `json:"mask"`
	Dropins []text `json:"dropins"`
}

// ignition puts what a configuration names into a root file system, as the
// first boot of a real host would.
type ignition struct {
	root  string
	files string            // where `local` names are looked up
	other map[string]string // `local` names that lie elsewhere
}

// runIgnite is `ignite ROOT BUTANE FILES_DIR [NAME=PATH]...`. It prints the
// units to enable, one a line.
func runIgnite() int {
	if len(os.Args) < 4 {
		return fail("ignite", fmt.Errorf("usage: ignite ROOT BUTANE FILES_DIR [NAME=PATH]..."))
	}
	into := ignition{root: os.Args[1], files: os.Args[3], other: map[string]string{}}
	for _, pair := range os.Args[4:] {
		name, path, _ := strings.Cut(pair, "=")
		into.other[name] = path
	}
	source, err := os.ReadFile(os.Args[2])
	if err != nil {
		return fail("ignite", err)
	}
	var wanted butane
	if err := yaml.UnmarshalStrict(source, &wanted); err != nil {
		return fail("ignite", fmt.Errorf("%s: %w", os.Args[2], err))
	}
	if err := into.apply(wanted); err != nil {
		return fail("ignite", fmt.Errorf("%s: %w", os.Args[2], err))
	}
	return 0
}

func (into ignition) apply(wanted butane) error {
	for _, directory := range wanted.Storage.Directories {
		path := filepath.Join(into.root, directory.Path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, mode(directory, 0o755)); err != nil {
			return err
		}
	}
	for _, file := range wanted.Storage.Files {
		if err := into.write(file.Path, file.Contents.Local, file.Contents.Inline, mode(file.node, 0o644)); err != nil {
			return err
		}
	}
	for _, link := range wanted.Storage.Links {
		if err := into.link(link.Path, link.Target); err != nil {
			return err
		}
	}
	for _, unit := range wanted.Systemd.Units {
		if err := into.unit(unit); err != nil {
			return err
		}
	}
	return nil
}

func (into ignition) unit(unit unit) error {
	const folder = "/etc/systemd/system/"
	if unit.Mask {
		return into.link(folder+unit.Name, "/dev/null")
	}
	if unit.Contents != "" || unit.ContentsLocal != "" {
		if err := into.write(folder+unit.Name, unit.ContentsLocal, unit.Contents, 0o644); err != nil {
			return err
		}
	}
	for _, dropin := range unit.Dropins {
		path := folder + unit.Name + ".d/" + dropin.Name
		if err := into.write(path, dropin.ContentsLocal, dropin.Contents, 0o644); err != nil {
			return err
		}
	}
	if unit.Enabled {
		fmt.Println(unit.Name)
	}
	return nil
}

// write makes a file from another one or from a text, by rename: the old one
// may be a program that runs.
func (into ignition) write(path, local, inline string, mode fs.FileMode) error {
	contents := []byte(inline)
	if local != "" {
		source, elsewhere := into.other[local]
		if !elsewhere {
			source = filepath.Join(into.files, local)
		}
		var err error
		if contents, err = os.ReadFile(source); err != nil {
			return err
		}
	}
	path = filepath.Join(into.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, contents, mode); err != nil {
		return err
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func (into ignition) link(path, target string) error {
	path = filepath.Join(into.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(target, path)
}

func mode(of node, otherwise fs.FileMode) fs.FileMode {
	if of.Mode == nil {
		return otherwise
	}
	return *of.Mode
}
