package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
)

// Narrow is the width of a small phone in CSS pixels.
const Narrow = 360

// faults is an expression: what is wrong with the look of the page.
//
//go:embed faults.js
var faults string

// Faults are what is wrong with the look of the page: its width, its contrast and its labels.
func (p *Tab) Faults() []string {
	p.Helper()
	return Eval[[]string](p, faults)
}

// Roles returns the names of the elements of each role in the tree that screen readers see.
func (p *Tab) Roles() map[string][]string {
	p.Helper()
	nodes, err := p.nodes()
	if err != nil {
		p.Fatal(err)
	}
	all := map[string][]string{}
	for _, node := range nodes {
		all[node.role] = append(all[node.role], node.name)
	}
	return all
}

// Texts returns the texts of the elements with a role and a name, with one space between words. An empty name matches every name.
// It fails if the page changes meanwhile.
func (p *Tab) Texts(role, name string) (texts []string, err error) {
	nodes, err := p.nodes()
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if node.role != role || name != "" && node.name != name {
			continue
		}
		element, err := Get(p, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: node.of.BackendDOMNodeID})
		if err != nil {
			return nil, fmt.Errorf("find the %s %q: %w", role, name, err)
		}
		byValue := true
		said, err := Get(p, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
			FunctionDeclaration: "function() { return this.innerText; }", ObjectID: element.Object.ObjectID, ReturnByValue: &byValue,
		})
		if err != nil {
			return nil, fmt.Errorf("read the %s %q: %w", role, name, err)
		}
		var text string
		if err := json.Unmarshal(said.Result.Value, &text); err != nil {
			return nil, fmt.Errorf("read the %s %q: %w", role, name, err)
		}
		texts = append(texts, strings.Join(strings.Fields(text), " "))
	}
	return texts, nil
}

// node is a node of the tree that screen readers see.
type node struct {
	role, name string
	of         *accessibility.Node
}

func (p *Tab) nodes() (all []node, err error) {
	tree, err := Get(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		return nil, fmt.Errorf("read the roles of the page: %w", err)
	}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		one := node{of: n}
		if one.role, err = textOf(n.Role); err != nil {
			return nil, err
		}
		if one.name, err = textOf(n.Name); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// textOf is a value of the tree, empty without one.
func textOf(value *accessibility.Value) (text string, err error) {
	if value == nil || len(value.Value) == 0 {
		return "", nil
	}
	if err := json.Unmarshal(value.Value, &text); err != nil {
		return "", fmt.Errorf("%s: %w", value.Value, err)
	}
	return text, nil
}
