package house

import (
	"os"
	"testing"
)

// repository is the root of the tree, from this package's folder.
const repository = "../.."

func TestHouse(t *testing.T) {
	tree, err := Load(os.DirFS(repository))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) < 2 {
		t.Fatalf("the tree has %d packages: is %q its root?", len(tree.Packages), repository)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, v := range rule.Check(tree) {
				t.Error(v)
			}
		})
	}
}
