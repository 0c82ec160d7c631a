"""The language server: what an editor knows of rule files while they are typed."""
