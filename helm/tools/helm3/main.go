// Renders the chart in CHART with the values file VALUES by Helm 3's engine, which also checks the values' schema, and compares the objects
// with those that it reads from standard input, which Helm 4 rendered: chart-helm3 CHART VALUES KUBE_VERSION RELEASE NAMESPACE.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"reflect"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	yamldocs "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects by kind and name.
type objects map[string]map[string]any

func (all objects) add(manifests io.Reader) error {
	documents := yamldocs.NewYAMLReader(bufio.NewReader(manifests))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return err
		}
		if object == nil {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		name := fmt.Sprint(object["kind"], "/", metadata["name"])
		if all[name] != nil {
			return fmt.Errorf("%s is there twice", name)
		}
		all[name] = object
	}
}

func render(chartPath, valuesPath, kubeVersion, release, namespace string) (objects, error) {
	chart, err := loader.Load(chartPath)
	if err != nil {
		return nil, err
	}
	values, err := chartutil.ReadValuesFile(valuesPath)
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *version
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, top)
	if err != nil {
		return nil, err
	}
	all := objects{}
	for name, content := range files {
		base := path.Base(name)
		if base == "NOTES.txt" || strings.HasPrefix(base, "_") {
			continue
		}
		if err := all.add(strings.NewReader(content)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

// The names of the objects that differ or that only one of both has.
func differences(one, other objects) []string {
	different := map[string]bool{}
	for name, object := range one {
		different[name] = !reflect.DeepEqual(object, other[name])
	}
	for name := range other {
		if one[name] == nil {
			different[name] = true
		}
	}
	var names []string
	for name, differs := range different {
		if differs {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func run(args []string) (int, error) {
	if len(args) != 5 {
		return 0, errors.New("usage: chart-helm3 CHART VALUES KUBE_VERSION RELEASE NAMESPACE <MANIFESTS")
	}
	three, err := render(args[0], args[1], args[2], args[3], args[4])
	if err != nil {
		return 0, err
	}
	four := objects{}
	if err := four.add(os.Stdin); err != nil {
		return 0, err
	}
	if names := differences(three, four); len(names) > 0 {
		return 0, fmt.Errorf("Helm 3 and Helm 4 render differently: %s", strings.Join(names, ", "))
	}
	return len(three), nil
}

func main() {
	count, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d objects are the same by Helm 3\n", count)
}
