package holdfast_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "github.com/holdfast-go/holdfast"

// projectParts are the parts of the project and the arrows that may leave
// each: what its non-test code may import of ours. A part is a folder with all
// below it, "." the root package alone. What is missing here is forbidden; a
// new folder gets a line.
var projectParts = map[string]struct {
	imports []string
	// own marks a module of its own, which may require third parties.
	own bool
}{
	"driver":       {},
	"internal":     {imports: []string{"driver"}},
	".":            {imports: []string{"driver", "internal"}},
	"memlock":      {imports: []string{"driver", "internal"}},
	"filelock":     {imports: []string{"driver", "internal"}},
	"drivertest":   {imports: []string{"driver", "internal", ".", "memlock"}},
	"holdfasttest": {imports: []string{"driver", "internal", ".", "memlock"}},

	// Drivers that need a client of their store.
	"redislock": {own: true, imports: []string{"driver"}},
	"zklock":    {own: true, imports: []string{"driver"}},
	"etcdlock":  {own: true, imports: []string{"driver"}},

	// The ends of the graph: no arrow may point at them. Nor may they import
	// an internal package of the root, whose version a user's build may differ
	// from theirs.
	"cmd":         {own: true, imports: []string{"driver", ".", "memlock", "filelock", "redislock", "etcdlock", "zklock", "drivertest"}},
	"integration": {own: true, imports: []string{"driver", ".", "memlock", "filelock", "drivertest", "holdfasttest"}},
	"bench":       {own: true, imports: []string{"driver", ".", "memlock", "filelock", "redislock", "etcdlock", "zklock", "internal"}},
}

// allowedThirdParty is all that the root module may import beside the
// standard library and itself.
const allowedThirdParty = "golang.org/x/sys/"

// deadEnds are never imported by other parts, not even by their tests.
var deadEnds = []string{"cmd", "integration", "bench"}

func TestImportsPointOneWay(t *testing.T) {
	wrong, err := wrongArrows(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// A check that cannot fail proves nothing: here it must, arrow by arrow.
func TestImportsCheckFindsWrongArrows(t *testing.T) {
	tree := fstest.MapFS{}
	for file, imports := range map[string]string{
		"driver/driver.go":              modulePath,
		"client.go":                     modulePath + "/memlock",
		"client_windows.go":             "example.com/other",
		"client_test.go":                modulePath + "/memlock", // fine: tests may import drivers
		"memlock/memlock.go":            modulePath + "/filelock/internal/fd",
		"memlock/memlock_test.go":       modulePath + "/bench",
		"filelock/filelock.go":          "golang.org/x/sys/unix",              // fine
		"filelock/again.go":             modulePath + "/filelock/internal/fd", // fine: within the part
		"cmd/holdfast/main.go":          "example.com/other",                  // fine: own module
		"cmd/holdfast/run/run.go":       modulePath + "/internal/names",
		"stray/stray.go":                "fmt",
		"driver/testdata/ignored.go":    modulePath + "/cmd/holdfast",
		".tools/src/ignored/ignored.go": modulePath + "/cmd/holdfast",
	} {
		tree[file] = &fstest.MapFile{Data: fmt.Appendf(nil, "package p\nimport %q\n", imports)}
	}
	got, err := wrongArrows(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"client.go: . must not import memlock",
		"client_windows.go: the root module must not import example.com/other",
		"cmd/holdfast/run/run.go: cmd must not import internal",
		"driver/driver.go: driver must not import .",
		"memlock/memlock.go: memlock must not import filelock",
		"memlock/memlock_test.go: memlock must not import bench",
		"stray/stray.go: stray is not in the table of parts: say what it may import",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wrongArrows returns one message for each import that the table forbids. It
// parses files instead of asking go list, and so sees those of every platform
// and build tag.
func wrongArrows(tree fs.FS) (wrong []string, err error) {
	err = fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "testdata" || file != "." && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		imports, err := importsOf(tree, file)
		if err != nil {
			return err
		}
		from := partOf(path.Dir(file))
		if _, known := projectParts[from]; !known {
			wrong = append(wrong, fmt.Sprintf("%s: %s is not in the table of parts: say what it may import", file, from))
			return nil
		}
		for _, imported := range imports {
			if complaint := judgeImport(from, imported, strings.HasSuffix(name, "_test.go")); complaint != "" {
				wrong = append(wrong, file+": "+complaint)
			}
		}
		return nil
	})
	return wrong, err
}

func importsOf(tree fs.FS, file string) ([]string, error) {
	source, err := fs.ReadFile(tree, file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range parsed.Imports {
		imports = append(imports, strings.Trim(spec.Path.Value, "\"`"))
	}
	return imports, nil
}

// judgeImport says what is wrong with an arrow, "" if nothing is.
func judgeImport(from, imported string, inTest bool) string {
	below, ours := strings.CutPrefix(imported, modulePath)
	if !ours {
		first, _, _ := strings.Cut(imported, "/")
		std := !strings.Contains(first, ".")
		if std || projectParts[from].own || strings.HasPrefix(imported, allowedThirdParty) {
			return ""
		}
		return "the root module must not import " + imported
	}
	to := partOf(path.Join(".", below))
	allowed := to == from || slices.Contains(projectParts[from].imports, to) || inTest && !slices.Contains(deadEnds, to)
	if allowed {
		return ""
	}
	return fmt.Sprintf("%s must not import %s", from, to)
}

// partOf returns the part that a folder belongs to: its first element.
func partOf(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}
