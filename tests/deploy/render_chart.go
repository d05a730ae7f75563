// Renders a Helm chart's templates with Go's own template engine, which is Helm's, and the few functions ours use.
// Usage: go run render_chart.go CHART < {"Values": …, "Release": …, "Chart": …}
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"text/template"
)

type files struct{ chart string }

func (f files) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	return string(text), err
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	functions := template.FuncMap{
		"quote":  func(value interface{}) string { return strconv.Quote(fmt.Sprint(value)) },
		"toJson": func(value interface{}) (string, error) { text, err := json.Marshal(value); return string(text), err },
		"indent": func(by int, text string) string {
			margin := strings.Repeat(" ", by)
			return margin + strings.ReplaceAll(text, "\n", "\n"+margin)
		},
		"default": func(fallback, value interface{}) interface{} {
			if value == nil || reflect.ValueOf(value).IsZero() {
				return fallback
			}
			return value
		},
	}
	var values map[string]interface{}
	check(json.NewDecoder(os.Stdin).Decode(&values))
	values["Files"] = files{os.Args[1]}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*.yaml"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		parsed, err := template.New(file).Funcs(functions).Option("missingkey=error").Parse(string(text))
		check(err)
		fmt.Println("---")
		check(parsed.Execute(os.Stdout, values))
	}
}
