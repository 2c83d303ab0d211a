package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	ignition "github.com/coreos/ignition/v2/config/v3_6"
	"github.com/coreos/ignition/v2/config/v3_6/types"
	"gopkg.in/yaml.v3"
)

// The forms that Ignition takes. Its own validator looks at the length and not at the digits.
var hashForm = regexp.MustCompile(`^(sha512-[0-9a-f]{128}|sha256-[0-9a-f]{64})$`)

// What a good Butane file became.
type result struct {
	version string
	files   int
	units   map[string]string // contents by name, of units that have any
}

// check translates and validates; the second value is everything that is wrong.
func check(input []byte, filesDir string) (result, []string) {
	faults := localFiles(input, filesDir)
	options := common.TranslateBytesOptions{}
	options.FilesDir = filesDir
	options.NoResourceAutoCompression = true
	output, report, err := config.TranslateBytes(input, options)
	for _, entry := range report.Entries {
		faults = append(faults, "butane: "+entry.String())
	}
	if err != nil {
		return result{}, append(faults, "butane: "+err.Error())
	}
	parsed, report, err := ignition.ParseCompatibleVersion(output)
	for _, entry := range report.Entries {
		faults = append(faults, "ignition: "+entry.String())
	}
	if err != nil {
		return result{}, append(faults, "ignition: "+err.Error())
	}
	faults = append(faults, hashes(output)...)
	units, wrong := unitFiles(parsed.Systemd.Units, filesDir)
	faults = append(faults, wrong...)
	// The parser lifts what it read to its own version.
	version := regexp.MustCompile(`"version":"([0-9.]+)"`).FindSubmatch(output)
	if version == nil {
		return result{}, append(faults, "the result has no version")
	}
	return result{string(version[1]), len(parsed.Storage.Files), units}, faults
}

// localFiles finds what is named by a key ending in "local" and is not there; of the file that a
// person puts beside the tree (the binary), the caller puts a stand-in.
func localFiles(input []byte, filesDir string) []string {
	var root any
	if err := yaml.Unmarshal(input, &root); err != nil {
		return []string{"yaml: " + err.Error()}
	}
	var faults []string
	walk(root, "", func(path, key, value string) {
		if key != "local" && !strings.HasSuffix(key, "_local") {
			return
		}
		info, err := os.Stat(filepath.Join(filesDir, value))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			faults = append(faults, fmt.Sprintf("%s: %s is not in the tree", path, value))
		case err != nil:
			faults = append(faults, fmt.Sprintf("%s: %s", path, err))
		case !info.Mode().IsRegular():
			faults = append(faults, fmt.Sprintf("%s: %s is no regular file", path, value))
		}
	})
	return faults
}

// hashes finds every verification in the result whose hash is none.
func hashes(output []byte) []string {
	var root any
	if err := json.Unmarshal(output, &root); err != nil {
		return []string{"json: " + err.Error()}
	}
	var faults []string
	walk(root, "", func(path, key, value string) {
		if key == "hash" && !hashForm.MatchString(value) {
			faults = append(faults, fmt.Sprintf(
				"%s: %q: expected sha512- and 128, or sha256- and 64 hex digits in lower case", path, value))
		}
	})
	return faults
}

// unitFiles gives the contents of the units, and finds those that differ from systemd/ or that
// nothing would start.
func unitFiles(units []types.Unit, filesDir string) (map[string]string, []string) {
	contents := make(map[string]string)
	var faults []string
	for _, unit := range units {
		path := filepath.Join("systemd", unit.Name)
		ours, err := os.ReadFile(filepath.Join(filesDir, path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err.Error())
		}
		if unit.Contents == nil {
			if err == nil {
				faults = append(faults, fmt.Sprintf("%s: has no contents although %s exists", unit.Name, path))
			}
			continue
		}
		contents[unit.Name] = *unit.Contents
		if err == nil && !bytes.Equal(ours, []byte(*unit.Contents)) {
			faults = append(faults, fmt.Sprintf("%s: is not %s", unit.Name, path))
		}
		enabled := unit.Enabled != nil && *unit.Enabled
		if enabled && !strings.Contains(*unit.Contents, "\n[Install]\n") {
			faults = append(faults, fmt.Sprintf("%s: enabled, but has no [Install]", unit.Name))
		}
	}
	if _, ours := contents["lockkeeper.service"]; !ours {
		faults = append(faults, "systemd.units: lockkeeper.service is not among them")
	}
	return contents, faults
}

// walk calls seen for every string below node that has a key.
func walk(node any, path string, seen func(path, key, value string)) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			below := strings.TrimPrefix(path+"."+key, ".")
			if text, is := value.(string); is {
				seen(below, key, text)
			} else {
				walk(value, below, seen)
			}
		}
	case []any:
		for index, value := range node {
			walk(value, fmt.Sprintf("%s[%d]", path, index), seen)
		}
	}
}
