package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const unit = "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

const good = `variant: fcos
version: 1.5.0
storage:
  files:
    - path: /usr/local/bin/lockkeeper
      mode: 0755
      contents:
        source: https://example.com/lockkeeper
        verification:
          hash: sha256-` + digits + `
    - path: /etc/lockkeeper/config.d/50-local.toml
      contents:
        local: ignition/50-local.toml
systemd:
  units:
    - name: lockkeeper.service
      enabled: true
      contents_local: systemd/lockkeeper.service
    - name: zincati.service
      mask: true
`
const digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// tree makes the folder that the Butane files above take their local files from.
func tree(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, contents := range map[string]string{
		"systemd/lockkeeper.service": unit,
		"systemd/other.service":      unit + "# other\n",
		"ignition/50-local.toml":     "[slot]\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestGood(t *testing.T) {
	result, faults := check([]byte(good), tree(t))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if result.files != 2 || result.version != "3.4.0" || result.units["lockkeeper.service"] != unit {
		t.Fatalf("%+v", result)
	}
}

// Each case changes one thing of the good file, and the fault must name it.
func TestEachFaultIsFound(t *testing.T) {
	for _, broken := range []struct{ name, from, to, fault string }{
		{"no YAML", "storage:\n", "storage: [\n", "yaml: "},
		{"unknown variant", "variant: fcos", "variant: fcs", "butane: "},
		{"version from the future", "version: 1.5.0", "version: 9.0.0", "butane: "},
		{"unknown key", "mode: 0755", "mood: 0755", "unused key mood"},
		{"mode that is decimal", "mode: 0755", "mode: 755", "mode"},
		{"relative path", "path: /usr/local", "path: usr/local", "path"},
		{"hash with other letters", "sha256-0", "sha256-g", "hex digits"},
		{"hash with capitals", "89abcdef", "89ABCDEF", "hex digits"},
		{"hash that is short", "sha256-0", "sha256-", "hash"},
		{"hash of another kind", "sha256-", "md5-", "hash"},
		{"file that is not there", "local: ignition/50-local.toml", "local: ignition/51-local.toml",
			"ignition/51-local.toml is not in the tree"},
		{"folder in place of a file", "local: ignition/50-local.toml", "local: ignition", "no regular file"},
		{"unit that is not there", "contents_local: systemd/lockkeeper.service",
			"contents_local: systemd/gone.service", "systemd/gone.service is not in the tree"},
		{"another unit under our name", "contents_local: systemd/lockkeeper.service",
			"contents_local: systemd/other.service", "is not systemd/lockkeeper.service"},
		{"unit without contents", "      contents_local: systemd/lockkeeper.service\n", "", "has no contents"},
		{"unit under another name", "name: lockkeeper.service", "name: lookkeeper.service",
			"lockkeeper.service is not among them"},
		{"nothing would start it", "contents_local: systemd/lockkeeper.service",
			"contents: \"[Service]\\nExecStart=/bin/true\\n\"", "no [Install]"},
		{"the same file twice", "path: /etc/lockkeeper/config.d/50-local.toml",
			"path: /usr/local/bin/lockkeeper", "butane: "},
	} {
		t.Run(broken.name, func(t *testing.T) {
			if !strings.Contains(good, broken.from) {
				t.Fatalf("%q is not in the good file", broken.from)
			}
			input := strings.ReplaceAll(good, broken.from, broken.to)
			_, faults := check([]byte(input), tree(t))
			if all := strings.Join(faults, "\n"); !strings.Contains(all, broken.fault) {
				t.Fatalf("expected %q among the faults, but found: %s", broken.fault, all)
			}
		})
	}
}
