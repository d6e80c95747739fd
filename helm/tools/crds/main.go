// Reads YAML from standard input and decodes the objects of custom resources strictly into the types of their projects: an unknown field,
// or a value of another type, is an error.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamldocs "k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"bufio"
)

func typeOf(meta metav1.TypeMeta) any {
	switch meta.APIVersion + " " + meta.Kind {
	case "cert-manager.io/v1 Certificate":
		return &certmanager.Certificate{}
	case "gateway.networking.k8s.io/v1 GRPCRoute":
		return &gateway.GRPCRoute{}
	case "monitoring.coreos.com/v1 PodMonitor":
		return &monitoring.PodMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		return &monitoring.PrometheusRule{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &monitoring.ServiceMonitor{}
	}
	return nil
}

func check(input io.Reader) (int, error) {
	documents := yamldocs.NewYAMLReader(bufio.NewReader(input))
	checked := 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return checked, nil
		}
		if err != nil {
			return checked, err
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			return checked, err
		}
		object := typeOf(meta)
		if object == nil {
			continue
		}
		if err := yaml.UnmarshalStrict(bytes.TrimSpace(document), object); err != nil {
			return checked, fmt.Errorf("%s: %w", meta.Kind, err)
		}
		checked++
	}
}

func main() {
	checked, err := check(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d custom resources match the types of their projects\n", checked)
}
