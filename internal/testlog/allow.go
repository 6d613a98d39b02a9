package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
)

// modulePath is cut off package names in the allow-file.
const modulePath = "github.com/holdfast-go/holdfast"

// allowList is the skips that are allowed. A test that ends in * stands for
// all that begin so.
type allowList []struct{ pkg, test string }

// readAllowed reads lines "package test reason". Without a reason a line is
// an error: whoever reads the list a year on must see what would end it.
func readAllowed(file string) (allowList, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list allowList
	var errs []error
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 3 {
			errs = append(errs, fmt.Errorf("%s:%d: want: package test reason", file, n))
			continue
		}
		list = append(list, struct{ pkg, test string }{path.Join(modulePath, fields[0]), fields[1]})
	}
	return list, errors.Join(errs...)
}

func (list allowList) has(s skip) bool {
	for _, a := range list {
		prefix, open := strings.CutSuffix(a.test, "*")
		if a.pkg == s.pkg && (a.test == s.test || open && strings.HasPrefix(s.test, prefix)) {
			return true
		}
	}
	return false
}
