"""Update rules: they rewrite or scale a component's gradient factors."""
