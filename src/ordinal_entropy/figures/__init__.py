"""Pictures from what runs and studies have written; needs the [report] extra."""
